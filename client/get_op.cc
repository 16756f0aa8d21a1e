#include "client/get_op.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/string_view.h"
#include "client/batching.h"
#include "client/chunk_code.h"

namespace cistern {

using transport::FrameType;

GetOp::GetOp(std::shared_ptr<ClientCore> core, std::shared_ptr<const OpenNamespaceInfo> ns,
             absl::Span<const GetItem> items, const GetOptions& options, bool async)
    : Operation(core->env, core->CallStart(options, async)),
      core_(std::move(core)),
      ns_(std::move(ns)),
      items_(items),
      options_(options) {}

void GetOp::Begin() {
  result_.items.resize(items_.size());
  routes_.resize(items_.size());
  if (options_.order == GetOrder::kByPart) {
    for (ChunkResult& item : result_.items) item.code = ChunkCode::kUnimplemented;
    result_.status = absl::UnimplementedError("gets ordered by part");
    return Finish();
  }
  std::string message;
  pins_ = core_->buffers.Resolve(
      items_.size(), [this](size_t i) -> const Memory& { return items_[i].memory; },
      BufferRegistry::Use::kWrite, &memory_, &message);
  Note(message);
  const std::vector<bool> overlaps = FindOverlaps(memory_);
  for (size_t i = 0; i < items_.size(); ++i) {
    const auto item = static_cast<uint32_t>(i);
    if (!memory_[i]) {
      Fail(item, ChunkCode::kInvalidArgument, "");
    } else if (overlaps[i]) {
      Fail(item, ChunkCode::kInvalidArgument, "its target overlaps another");
    } else if (CheckItem(i)) {
      todo_.push_back(item);
      result_.items[i].code = ChunkCode::kUnavailable;  // until an answer comes
    }
  }
  std::vector<ChunkName> names;
  names.reserve(todo_.size());
  for (const uint32_t i : todo_) names.push_back(NameOf(i));
  // A chunk of a mutable namespace may have been written anew in another store: only the master
  // knows.
  if (!ns_->options.mutable_chunks) {
    std::vector<Placement> cached;
    core_->placements.Get(names, &cached);
    for (size_t k = 0; k < todo_.size(); ++k) routes_[todo_[k]].placement = cached[k];
  }
  Round();
}

bool GetOp::CheckItem(size_t i) {
  const GetItem& item = items_[i];
  const uint64_t bytes = memory_[i].bytes();
  const auto refuse = [&](std::string_view why) {
    Fail(static_cast<uint32_t>(i), ChunkCode::kInvalidArgument, why);
    return false;
  };
  if (item.shard > Shard::kMax) return refuse("no such shard");
  if (bytes > kMaxChunkBytes) return refuse("its target is longer than any chunk");
  if (item.range_bytes > 0) {
    if (item.part_count > 0 || item.first_part > 0) return refuse("both a range and parts");
    if (item.range_bytes > bytes || (item.range_bytes < bytes && !item.any_length)) {
      return refuse("its target is not as long as its range");
    }
    return true;
  }
  if (item.range_offset > 0) return refuse("a range of 0 bytes");
  const bool whole = item.first_part == 0 && item.part_count == 0;
  if (whole && !item.any_length && bytes < kMinChunkBytes) {
    return refuse("its target is shorter than any chunk");
  }
  return true;
}

GetSelection GetOp::SelectionOf(uint32_t i) const {
  const GetItem& item = items_[i];
  GetSelection selection;
  selection.any_length = item.any_length;
  if (item.range_bytes > 0) {
    selection.kind = GetSelection::Kind::kRange;
  } else if (item.first_part > 0 || item.part_count > 0) {
    selection.kind = GetSelection::Kind::kParts;
    selection.first_part = item.first_part;
    selection.part_count = item.part_count;
  }
  return selection;
}

void GetOp::Round() {
  std::vector<uint32_t> unknown;
  for (const uint32_t i : todo_) {
    if (!routes_[i].placement.stores[0].known()) unknown.push_back(i);
  }
  if (unknown.empty()) return Ask();
  LookUp(unknown);
}

void GetOp::LookUp(const std::vector<uint32_t>& items) {
  // One request names one shard; a batch has few different ones.
  std::vector<std::pair<uint16_t, std::vector<uint32_t>>> by_shard;
  for (const uint32_t i : items) {
    const uint16_t shard = items_[i].shard;
    auto group = std::find_if(by_shard.begin(), by_shard.end(),
                              [shard](const auto& g) { return g.first == shard; });
    if (group == by_shard.end()) group = by_shard.insert(group, {shard, {}});
    group->second.push_back(i);
  }
  const RequestLimits limits = {.max_chunks = core_->master->KeysPerRequest(1, KeyId::kBytes, 9),
                                .max_bytes = UINT64_MAX};
  step_.Begin();
  for (auto& [shard, group] : by_shard) {
    for (auto& some : CutIntoRequests(group, limits, [](uint32_t) { return 0; })) {
      step_.Add();
      LookUpSome(std::move(some), shard);
    }
  }
  if (step_.End()) Ask();
}

void GetOp::LookUpSome(std::vector<uint32_t> items, uint16_t shard) {
  wire::LookupRequest request;
  request.set_ns_ref(core_->master->Bind(*ns_));
  ColumnWriter<KeyId> ids(request.mutable_ids(), items.size());
  for (size_t k = 0; k < items.size(); ++k) ids.Set(k, items_[items[k]].id);
  request.set_shard_first(shard);
  request.set_shard_count(1);
  request.set_no_lease(true);
  MasterCall<wire::LookupRequest, wire::LookupReply>::Start(
      shared_from_this(), core_->master.get(), FrameType::kLookup, FrameType::kLookupReply,
      std::move(request),
      [this, items = std::move(items)](const absl::Status& status, wire::LookupReply& reply) {
        OnLookedUp(items, status, reply);
        if (step_.End()) Ask();
      });
}

void GetOp::OnLookedUp(const std::vector<uint32_t>& items, const absl::Status& status,
                       const wire::LookupReply& reply) {
  const size_t n = items.size();
  const size_t columns = std::max<uint32_t>(reply.replica_columns(), 1);
  absl::Status sound = status;
  if (sound.ok() && (columns > 64 || (!reply.stores().empty() &&
                                      reply.stores().size() != columns * n * sizeof(uint16_t)))) {
    sound = absl::InternalError("the master's store column does not fit the request");
  }
  if (!sound.ok()) {
    for (const uint32_t i : items) Fail(i, FromStatus(sound), StdView(sound.message()));
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = sound;
    return;
  }
  const StoreTable::Translation translation = core_->stores->translation();
  const auto store_at = [&](size_t column, size_t k) {
    if (reply.stores().empty() || column >= columns) return LocalStore(LocalStore::kNone);
    uint16_t index;
    std::memcpy(&index, reply.stores().data() + 2 * (column * n + k), 2);
    return translation[index];
  };
  PlacementCache::Writer writer(&core_->placements, kPlacementLifetime);
  for (size_t k = 0; k < n; ++k) {
    const uint32_t i = items[k];
    Route& route = routes_[i];
    route.looked_up = true;
    route.replica = 0;
    route.placement = {{store_at(0, k), store_at(1, k)}};
    if (route.placement.stores[0].known()) {
      writer.Add(NameOf(i), route.placement);
    } else {
      Fail(i, ChunkCode::kNotFound, "");
    }
  }
}

void GetOp::Ask() {
  struct Group {
    LocalStore store;
    GetSelection selection;
    std::vector<uint32_t> items;
  };
  std::vector<Group> groups;
  const MonoTime now = clock().Mono();
  for (const uint32_t i : todo_) {
    Route& route = routes_[i];
    if (route.settled) continue;
    // A store that failed a moment ago is asked only where there is no other.
    if (route.replica == 0 && route.placement.stores[1].known() &&
        core_->avoid.Contains(route.placement.stores[0], now)) {
      std::swap(route.placement.stores[0], route.placement.stores[1]);
    }
    const LocalStore store = route.placement.stores[route.replica];
    const GetSelection selection = SelectionOf(i);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.store == store && g.selection == selection;
    });
    if (group == groups.end()) group = groups.insert(group, {store, selection, {}});
    group->items.push_back(i);
  }
  step_.Begin();
  for (Group& group : groups) AskStore(group.store, group.selection, std::move(group.items));
  if (step_.End()) OnAllAnswered();
}

void GetOp::AskStore(LocalStore store, const GetSelection& selection, std::vector<uint32_t> items) {
  const absl::StatusOr<StoreTable::Link> link = core_->stores->Connect(store, *ns_);
  const RequestLimits limits =
      RequestLimits::For(link.ok() ? link->channel->peer() : transport::PeerInfo{},
                         GetCall::kMetaBytesPerChunk, core_->options.max_inflight_bytes);
  for (auto& some :
       CutIntoRequests(items, limits, [this](uint32_t i) { return memory_[i].bytes(); })) {
    step_.Add();
    AskBatch(store, selection, std::move(some));
  }
}

void GetOp::AskBatch(LocalStore store, const GetSelection& selection, std::vector<uint32_t> items) {
  uint64_t bytes = 0;
  for (const uint32_t i : items) bytes += memory_[i].bytes();
  AcquireBudget(bytes,
                [this, store, selection, bytes, items = std::move(items)](bool granted) mutable {
                  if (granted) return StartBatch(store, selection, std::move(items), bytes);
                  const absl::Status why = Interrupted();
                  for (const uint32_t i : items) Fail(i, FromStatus(why), StdView(why.message()));
                  if (step_.End()) OnAllAnswered();
                });
}

void GetOp::StartBatch(LocalStore store, const GetSelection& selection, std::vector<uint32_t> items,
                       uint64_t bytes) {
  const absl::Status interrupted = Interrupted();
  absl::StatusOr<StoreTable::Link> link = interrupted.ok()
                                              ? core_->stores->Connect(store, *ns_)
                                              : absl::StatusOr<StoreTable::Link>(interrupted);
  if (!link.ok()) {
    ReleaseBudget(bytes);
    const GetOutcome none{.code = FromStatus(link.status())};
    OnAnswered(store, {}, items, link.status(), std::vector<GetOutcome>(items.size(), none));
    if (step_.End()) OnAllAnswered();
    return;
  }
  GetBatch batch;
  batch.selection = selection;
  batch.targets.reserve(items.size());
  for (const uint32_t i : items) {
    batch.targets.push_back({NameOf(i), memory_[i], items_[i].range_offset, items_[i].range_bytes});
  }
  GetCall::Start(shared_from_this(), *link, std::move(batch),
                 [this, store, link = *link, bytes, items = std::move(items)](
                     const absl::Status& status, const std::vector<GetOutcome>& outcomes) {
                   ReleaseBudget(bytes);
                   OnAnswered(store, link, items, status, outcomes);
                   if (step_.End()) OnAllAnswered();
                 });
}

void GetOp::OnAnswered(LocalStore store, const StoreTable::Link& link,
                       const std::vector<uint32_t>& items, const absl::Status& status,
                       const std::vector<GetOutcome>& outcomes) {
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    core_->avoid.Add(store, clock().Mono());
  }
  bool any_mismatch = false;
  for (size_t k = 0; k < items.size(); ++k) {
    any_mismatch = any_mismatch || outcomes[k].mismatch;
    OnOutcome(items[k], outcomes[k], StdView(status.message()));
  }
  if (any_mismatch && link.channel != nullptr) ReportBad(link, items, outcomes);
}

void GetOp::OnOutcome(uint32_t item, const GetOutcome& outcome, std::string_view why) {
  ChunkResult& result = result_.items[item];
  result.code = outcome.code;
  result.verified = outcome.verified;
  result.length = outcome.length;
  switch (outcome.code) {
    case ChunkCode::kOk:
      routes_[item].settled = true;
      return;
    case ChunkCode::kNotFound:
      // A store drops what is reported bad: that is no reason to call it merely absent.
      if (routes_[item].mismatch) result.code = ChunkCode::kDataLoss;
      return TryElsewhere(item);
    case ChunkCode::kInvalidArgument:
      routes_[item].settled = true;
      return Note(outcome.length > 0
                      ? absl::StrCat("item ", item, ": the chunk has ", outcome.length,
                                     " bytes, the target ", memory_[item].bytes())
                      : absl::StrCat("item ", item, ": refused: ", AbslView(why)));
    case ChunkCode::kDataLoss:
      if (outcome.mismatch) {
        routes_[item].mismatch = true;
        core_->counters.verify_failures.fetch_add(1, std::memory_order_relaxed);
        Note(absl::StrCat("item ", item, ": bytes that do not fit their digests"));
      }
      return TryElsewhere(item);
    case ChunkCode::kUnavailable:
    case ChunkCode::kAborted:
    case ChunkCode::kResourceExhausted:
    case ChunkCode::kInternal:
      Note(why);
      return TryElsewhere(item);
    default:
      Note(why);
      routes_[item].settled = true;
  }
}

void GetOp::TryElsewhere(uint32_t item) {
  Route& route = routes_[item];
  core_->placements.Drop(NameOf(item));
  if (route.replica == 0 && route.placement.stores[1].known()) {
    route.replica = 1;
  } else if (!route.looked_up) {
    route.placement = Placement();
  } else if (ns_->options.mutable_chunks && !std::exchange(route.moved, true)) {
    route.placement = Placement();  // written anew elsewhere since the master was asked, perhaps
  } else {
    route.settled = true;
    return;
  }
  core_->counters.retries.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  again_.push_back(item);
}

void GetOp::OnAllAnswered() {
  {
    MutexLock lock(mutex_);
    todo_ = std::exchange(again_, {});
  }
  const absl::Status interrupted = Interrupted();
  if (absl::IsCancelled(interrupted)) {
    for (const uint32_t i : todo_) Fail(i, ChunkCode::kCancelled, "");
  }
  // Ends: each turn takes a replica, or the one lookup, away from every item left.
  if (todo_.empty() || !interrupted.ok()) return End();
  std::sort(todo_.begin(), todo_.end());
  Round();
}

void GetOp::ReportBad(const StoreTable::Link& link, const std::vector<uint32_t>& items,
                      const std::vector<GetOutcome>& outcomes) {
  std::vector<size_t> bad;
  for (size_t k = 0; k < items.size(); ++k) {
    if (outcomes[k].mismatch) bad.push_back(k);
  }
  wire::ReportBad report;
  report.set_ns_ref(link.ns_ref);
  ColumnWriter<KeyId> ids(report.mutable_ids(), bad.size());
  ColumnWriter<uint16_t> shards(report.mutable_shards(), bad.size());
  ColumnWriter<uint64_t> versions(report.mutable_versions(), bad.size());
  for (size_t b = 0; b < bad.size(); ++b) {
    ids.Set(b, items_[items[bad[b]]].id);
    shards.Set(b, items_[items[bad[b]]].shard);
    versions.Set(b, outcomes[bad[b]].version);
  }
  report.set_deadline_ms(5000);
  core_->bad_reports.Send(link, report.SerializeAsString());
}

void GetOp::End() {
  ClientCounters& counters = core_->counters;
  uint64_t chunks = 0, bytes = 0, misses = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const ChunkResult& item = result_.items[i];
    chunks += item.code == ChunkCode::kOk ? 1 : 0;
    bytes += item.code == ChunkCode::kOk ? std::min(item.length, memory_[i].bytes()) : 0;
    misses += item.code == ChunkCode::kNotFound ? 1 : 0;
  }
  counters.get_chunks.fetch_add(chunks, std::memory_order_relaxed);
  counters.get_bytes.fetch_add(bytes, std::memory_order_relaxed);
  counters.get_misses.fetch_add(misses, std::memory_order_relaxed);
  pins_.Release();
  {
    MutexLock lock(mutex_);
    result_.message = std::move(message_);
    // As a whole it failed only if no chunk has an answer of its own.
    if (!failure_.ok() && chunks == 0 && misses == 0) result_.status = failure_;
  }
  Finish();
}

void GetOp::Fail(uint32_t item, ChunkCode code, std::string_view why) {
  result_.items[item].code = code;
  routes_[item].settled = true;
  if (!why.empty()) Note(absl::StrCat("item ", item, ": ", AbslView(why)));
}

void GetOp::Note(std::string_view message) {
  if (message.empty()) return;
  MutexLock lock(mutex_);
  if (message_.empty()) message_ = std::string(message);
}

}  // namespace cistern
