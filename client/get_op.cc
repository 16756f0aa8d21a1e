// GetOp: from the items to requests. What comes back: get_op_answers.cc.
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
      options_(options) {
  if (async) progress_.emplace(items.size(), [this] { Progressed(); });
}

void GetOp::Begin() {
  result_.items.resize(items_.size());
  routes_.resize(items_.size());
  std::string message;
  pins_ = core_->buffers.Resolve(
      items_.size(), [this](size_t i) -> const Memory& { return items_[i].memory; },
      BufferRegistry::Use::kWrite, &memory_, &message);
  Note(message);
  const std::vector<bool> overlaps = FindOverlaps(memory_);
  std::vector<uint32_t> items;
  for (size_t i = 0; i < items_.size(); ++i) {
    const auto item = static_cast<uint32_t>(i);
    if (!memory_[i]) {
      Fail(item, ChunkCode::kInvalidArgument, "");
    } else if (overlaps[i]) {
      Fail(item, ChunkCode::kInvalidArgument, "its target overlaps another");
    } else if (CheckItem(i)) {
      items.push_back(item);
      result_.items[i].code = ChunkCode::kUnavailable;  // until an answer comes
      routes_[i].check = ns_->options.digest && core_->sample.Checks(ns_->options.verify);
    }
  }
  std::vector<ChunkName> names;
  names.reserve(items.size());
  for (const uint32_t i : items) names.push_back(NameOf(i));
  // A chunk of a mutable namespace may have been written anew in another store: only the master
  // knows.
  if (!ns_->options.mutable_chunks) {
    std::vector<Placement> cached;
    core_->placements.Get(names, &cached);
    for (size_t k = 0; k < items.size(); ++k) routes_[items[k]].placement = cached[k];
  }
  live_.Begin();
  if (!by_part()) return StartWave(std::move(items));

  for (const uint32_t i : items) {
    budget_bytes_ += memory_[i].bytes();
    // Parts in front of a run are nobody's. (One beyond any chunk will be refused.)
    if (progress_.has_value()) progress_->Advance(i, std::min(items_[i].first_part, kMaxParts));
  }
  // More than the whole budget is the budget.
  budget_bytes_ = std::min(budget_bytes_, core_->options.max_inflight_bytes);
  AcquireBudget(budget_bytes_, [this, items = std::move(items)](bool granted) mutable {
    if (granted) return StartWave(std::move(items));
    budget_bytes_ = 0;
    const absl::Status why = Interrupted();
    for (const uint32_t i : items) Fail(i, FromStatus(why), StdView(why.message()));
    End();
  });
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
  const uint32_t front = routes_[i].front.parts;
  GetSelection selection;
  selection.any_length = item.any_length;
  if (item.range_bytes > 0) {
    selection.kind = GetSelection::Kind::kRange;
  } else if (item.first_part > 0 || item.part_count > 0 || front > 0) {
    selection.kind = GetSelection::Kind::kParts;
    selection.first_part = item.first_part;
    selection.part_count = item.part_count;
    if (front > 0) {
      selection.first_part = front;
      // 0 stays 0: to the end.
      if (item.part_count > 0) selection.part_count -= front - item.first_part;
    }
  }
  return selection;
}

uint64_t GetOp::FrontBytes(uint32_t i) const {
  const GetFront& front = routes_[i].front;
  if (front.parts == 0) return 0;
  const uint64_t begin =
      items_[i].range_bytes > 0 ? items_[i].range_offset : items_[i].first_part * front.part_bytes;
  return front.parts * front.part_bytes - begin;
}

GetTarget GetOp::TargetOf(uint32_t i) const {
  GetTarget target;
  target.name = NameOf(i);
  target.memory = memory_[i];
  target.front = routes_[i].front;
  target.check = routes_[i].check;
  target.memory_skip = FrontBytes(i);
  if (items_[i].range_bytes > 0) {
    target.range_offset = items_[i].range_offset + target.memory_skip;
    target.range_bytes = items_[i].range_bytes - target.memory_skip;
  }
  return target;
}

void GetOp::StartWave(std::vector<uint32_t> items) {
  const auto wave = std::make_shared<Wave>();
  wave->items = std::move(items);
  std::vector<uint32_t> unknown;
  for (const uint32_t i : wave->items) {
    if (!routes_[i].placement.stores[0].known()) unknown.push_back(i);
  }
  if (unknown.empty()) return Ask(wave);
  LookUp(wave, unknown);
}

void GetOp::LookUp(const WavePtr& wave, const std::vector<uint32_t>& items) {
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
  wave->step.Begin();
  for (auto& [shard, group] : by_shard) {
    for (auto& some : CutIntoRequests(group, limits, [](uint32_t) { return 0; })) {
      wave->step.Add();
      LookUpSome(wave, std::move(some), shard);
    }
  }
  if (wave->step.End()) Ask(wave);
}

void GetOp::LookUpSome(const WavePtr& wave, std::vector<uint32_t> items, uint16_t shard) {
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
      [this, wave, items = std::move(items)](const absl::Status& status, wire::LookupReply& reply) {
        OnLookedUp(items, status, reply);
        if (wave->step.End()) Ask(wave);
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
  const MonoTime now = clock().Mono();
  PlacementCache::Writer writer(&core_->placements, kPlacementLifetime);
  for (size_t k = 0; k < n; ++k) {
    const uint32_t i = items[k];
    Route& route = routes_[i];
    route.looked_up = true;
    route.replica = 0;
    route.placement = {{store_at(0, k), store_at(1, k)}};
    if (!route.placement.stores[0].known()) {
      // The master may not have heard of it yet.
      route.placement.stores[0] = core_->fresh.Find(NameOf(i), now);
    }
    if (route.placement.stores[0].known()) {
      writer.Add(NameOf(i), route.placement);
    } else {
      Fail(i, ChunkCode::kNotFound, "");
    }
  }
}

void GetOp::Ask(const WavePtr& wave) {
  struct Group {
    LocalStore store;
    GetSelection selection;
    std::vector<uint32_t> items;
  };
  std::vector<Group> groups;
  const MonoTime now = clock().Mono();
  for (const uint32_t i : wave->items) {
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
  wave->step.Begin();
  for (Group& group : groups) AskStore(wave, group.store, group.selection, group.items);
  if (wave->step.End()) OnAllAnswered(wave);
}

void GetOp::AskStore(const WavePtr& wave, LocalStore store, const GetSelection& selection,
                     const std::vector<uint32_t>& items) {
  const absl::StatusOr<StoreTable::Link> link = core_->stores->Connect(store, *ns_);
  const transport::PeerInfo peer = link.ok() ? link->channel->peer() : transport::PeerInfo{};
  RequestLimits limits =
      RequestLimits::For(peer, GetCall::kMetaBytesPerChunk, core_->options.max_inflight_bytes);
  // By part whatever one request can name goes into one.
  if (by_part()) limits.max_bytes = UINT64_MAX;
  for (auto& some :
       CutIntoRequests(items, limits, [this](uint32_t i) { return memory_[i].bytes(); })) {
    wave->step.Add();
    AskBatch(wave, store, selection, std::move(some));
  }
}

void GetOp::AskBatch(const WavePtr& wave, LocalStore store, const GetSelection& selection,
                     std::vector<uint32_t> items) {
  if (by_part()) return StartBatch(wave, store, selection, std::move(items), 0);
  uint64_t bytes = 0;
  for (const uint32_t i : items) bytes += memory_[i].bytes();
  AcquireBudget(
      bytes, [this, wave, store, selection, bytes, items = std::move(items)](bool granted) mutable {
        if (granted) return StartBatch(wave, store, selection, std::move(items), bytes);
        const absl::Status why = Interrupted();
        for (const uint32_t i : items) Fail(i, FromStatus(why), StdView(why.message()));
        if (wave->step.End()) OnAllAnswered(wave);
      });
}

void GetOp::Fail(uint32_t item, ChunkCode code, std::string_view why) {
  result_.items[item].code = code;
  if (!why.empty()) Note(absl::StrCat("item ", item, ": ", AbslView(why)));
  Settle(item);
}

void GetOp::Settle(uint32_t item) {
  routes_[item].settled = true;
  if (!progress_.has_value()) return;
  const ChunkCode code = result_.items[item].code;
  if (code == ChunkCode::kOk) {
    progress_->Advance(item, PartProgress::kAll);
  } else {
    progress_->Fail(item, code);
  }
}

void GetOp::Note(std::string_view message) {
  if (message.empty()) return;
  MutexLock lock(mutex_);
  if (message_.empty()) message_ = std::string(message);
}

PartWait GetOp::WaitPart(uint32_t part, absl::Duration timeout) {
  const uint32_t waited_for = std::min(part, PartProgress::kAll - 1);
  const MonoTime until =
      timeout == absl::InfiniteDuration() ? MonoTime::Infinite() : clock().Mono() + timeout;
  WaitUntil(until, [&] { return progress_->parts_done() > waited_for; });
  if (progress_->parts_done() <= waited_for) return PartWait::kTimeout;
  return progress_->Lacks(waited_for) ? PartWait::kMissing : PartWait::kReady;
}

}  // namespace cistern
