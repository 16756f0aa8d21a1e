#include "client/put_op.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/fault.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "client/batching.h"
#include "client/chunk_code.h"

namespace cistern {

using transport::FrameType;

namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(5);
constexpr absl::Duration kLongestPause = absl::Milliseconds(250);

Placement PlacementIn(LocalStore store) {
  Placement placement;
  placement.stores[0] = store;
  return placement;
}

absl::Duration PauseOf(int round) {
  return std::min(kFirstPause * (int64_t{1} << std::min(round, 10)), kLongestPause);
}

}  // namespace

PutOp::PutOp(std::shared_ptr<ClientCore> core, std::shared_ptr<const OpenNamespaceInfo> ns,
             absl::Span<const PutItem> items, const PutOptions& options, bool async)
    : Operation(core->env, core->CallStart(options, async)),
      core_(std::move(core)),
      ns_(std::move(ns)),
      items_(items),
      options_(options),
      id_(RandomId<OperationId>()),
      digest_(ns_->options.digest) {}

void PutOp::Begin() {
  result_.items.resize(items_.size());
  const uint64_t part_bytes = options_.part_bytes ? options_.part_bytes : ns_->options.part_bytes;
  if (part_bytes > UINT32_MAX) {
    Note("part_bytes: 2 GiB at most");
    for (ChunkResult& item : result_.items) item.code = ChunkCode::kInvalidArgument;
    return End();
  }
  part_bytes_ = static_cast<uint32_t>(part_bytes);
  if (options_.replace && !ns_->options.mutable_chunks) {
    result_.status = absl::FailedPreconditionError(
        absl::StrCat("the chunks of namespace \"", ns_->name,
                     "\" are immutable: to replace any, open one with the option mutable_chunks"));
    Note(StdView(result_.status.message()));
    for (ChunkResult& item : result_.items) item.code = ChunkCode::kFailedPrecondition;
    return End();
  }
  // The namespace's ttl is the store's to add, by its own clock.
  if (options_.expiry != absl::InfiniteFuture()) {
    expiry_unix_ms_ =
        static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixMillis(options_.expiry), 1));
  }
  CheckItems();
  FindDoubles();
  targets_.assign(items_.size(), LocalStore(LocalStore::kNone));
  if (ns_->options.mutable_chunks) mutations_.assign(items_.size(), 0);
  Place();
}

std::string PutOp::CheckKey(const PutItem& item) const {
  if (!ns_->options.keep_keys) return "";
  if (item.key.empty() || item.key.size() > kMaxKeyBytes) {
    return absl::StrCat("this namespace keeps keys: the item needs its key, 1 to ", kMaxKeyBytes,
                        " bytes");
  }
  if (KeyHasher(ns_->id).Hash(item.key) != item.id) return "its id is not that of its key";
  return "";
}

void PutOp::CheckItems() {
  std::string message;
  pins_ = core_->buffers.Resolve(
      items_.size(), [this](size_t i) -> const Memory& { return items_[i].memory; },
      BufferRegistry::Use::kRead, &memory_, &message);
  Note(message);
  layouts_.resize(items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    ChunkResult& result = result_.items[i];
    result.length = memory_[i].bytes();
    result.code = ChunkCode::kInvalidArgument;
    if (!memory_[i]) continue;
    const absl::StatusOr<PartLayout> layout = PartLayout::Make(memory_[i].bytes(), part_bytes_);
    if (!layout.ok()) {
      Note(absl::StrCat("item ", i, ": ", layout.status().message()));
    } else if (items_[i].shard > Shard::kMax) {
      Note(absl::StrCat("item ", i, ": a shard is at most ", Shard::kMax));
    } else if (const std::string wrong = CheckKey(items_[i]); !wrong.empty()) {
      Note(absl::StrCat("item ", i, ": ", wrong));
    } else {
      if (ns_->options.keep_keys) longest_key_ = std::max(longest_key_, items_[i].key.size());
      layouts_[i] = *layout;
      result.code = ChunkCode::kUnavailable;  // until an answer comes
      todo_.push_back(static_cast<uint32_t>(i));
    }
  }
}

void PutOp::FindDoubles() {
  absl::flat_hash_map<ChunkName, uint32_t> first;
  first.reserve(todo_.size());
  const auto is_double = [&](uint32_t i) {
    const auto [found, is_new] = first.emplace(ChunkName{items_[i].id, Shard(items_[i].shard)}, i);
    if (is_new) return false;
    if (options_.replace) {  // which of the two should stay?
      result_.items[i].code = ChunkCode::kInvalidArgument;
      Note(absl::StrCat("item ", i, ": a batch replaces a chunk once; item ", found->second,
                        " has the same key"));
      return true;
    }
    if (first_of_.empty()) first_of_.assign(items_.size(), UINT32_MAX);
    first_of_[i] = found->second;
    return true;
  };
  todo_.erase(std::remove_if(todo_.begin(), todo_.end(), is_double), todo_.end());
}

void PutOp::Place() {
  if (todo_.empty()) return End();
  // One request names one shard; a batch has few different ones.
  std::vector<std::pair<uint16_t, std::vector<uint32_t>>> by_shard;
  for (const uint32_t i : todo_) {
    const uint16_t shard = items_[i].shard;
    auto group = std::find_if(by_shard.begin(), by_shard.end(),
                              [shard](const auto& g) { return g.first == shard; });
    if (group == by_shard.end()) group = by_shard.insert(group, {shard, {}});
    group->second.push_back(i);
  }
  const RequestLimits limits = {.max_chunks = core_->master->KeysPerRequest(1, KeyId::kBytes, 8),
                                .max_bytes = UINT64_MAX};
  step_.Begin();
  for (auto& [shard, items] : by_shard) {
    for (auto& some : CutIntoRequests(items, limits, [](uint32_t) { return 0; })) {
      step_.Add();
      PlaceSome(std::move(some), shard);
    }
  }
  if (step_.End()) Send();
}

void PutOp::PlaceSome(std::vector<uint32_t> items, uint16_t shard) {
  wire::PlaceRequest request;
  request.set_ns_ref(core_->master->Bind(*ns_));
  ColumnWriter<KeyId> ids(request.mutable_ids(), items.size());
  ColumnWriter<uint32_t> lengths(request.mutable_lengths(), items.size());
  for (size_t k = 0; k < items.size(); ++k) {
    ids.Set(k, items_[items[k]].id);
    lengths.Set(k, static_cast<uint32_t>(layouts_[items[k]].length));
  }
  request.set_shard_first(shard);
  request.set_shard_count(1);
  request.set_affinity(options_.affinity);
  request.set_host_boot_id(core_->identity.boot_id.bytes.data(), BootId::kBytes);
  request.set_operation_id(id_.bytes.data(), OperationId::kBytes);
  request.set_expiry_unix_ms(expiry_unix_ms_);
  request.set_replace(options_.replace);
  MasterCall<wire::PlaceRequest, wire::PlaceReply>::Start(
      shared_from_this(), core_->master.get(), FrameType::kPlace, FrameType::kPlaceReply,
      std::move(request),
      [this, items = std::move(items)](const absl::Status& status, wire::PlaceReply& reply) {
        OnPlaced(items, status, reply);
        if (step_.End()) Send();
      });
}

void PutOp::OnPlaced(const std::vector<uint32_t>& items, const absl::Status& status,
                     const wire::PlaceReply& reply) {
  (void)CISTERN_FAULT("client.put.placed");
  const size_t n = items.size();
  absl::Status sound = status;
  if (sound.ok()) sound.Update(CheckBitmap(reply.present(), n, "present", true));
  if (sound.ok()) sound.Update(CheckBitmap(reply.in_progress(), n, "in_progress", true));
  if (sound.ok()) sound.Update(CheckBitmap(reply.refused(), n, "refused", true));
  const auto stores = Column<uint16_t>::Parse(reply.stores(), n, "stores", /*allow_empty=*/true,
                                              /*allow_broadcast=*/false, StoreIndex::kNone);
  if (sound.ok()) sound.Update(stores.status());
  if (!sound.ok()) {
    FailItems(items, sound);
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = sound;
    return;
  }
  const StoreTable::Translation translation = core_->stores->translation();
  PlacementCache::Writer writer(&core_->placements, kPlacementLifetime);
  for (size_t k = 0; k < n; ++k) {
    const uint32_t i = items[k];
    targets_[i] = LocalStore(LocalStore::kNone);
    const LocalStore store = translation[(*stores)[k]];
    const ChunkName name{items_[i].id, Shard(items_[i].shard)};
    if (!mutations_.empty()) mutations_[i] = reply.mutation();
    if (BitmapGet(reply.present(), k) && !options_.replace) {
      SetCode(i, ChunkCode::kPresent);
      if (store.known()) writer.Add(name, PlacementIn(store));
    } else if (BitmapGet(reply.in_progress(), k)) {
      SetCode(i, ChunkCode::kInProgress);
    } else if (BitmapGet(reply.refused(), k)) {
      SetCode(i, ChunkCode::kResourceExhausted);
      Note(reply.refused_reason());
    } else {
      SetCode(i, ChunkCode::kUnavailable);
      targets_[i] = store;
      if (!store.known()) Again({i});
    }
  }
}

void PutOp::Send() {
  struct Group {
    LocalStore store;
    uint64_t mutation = 0;  // a request carries one
    std::vector<uint32_t> items;
  };
  std::vector<Group> groups;
  const MonoTime now = clock().Mono();
  for (const uint32_t i : todo_) {
    const LocalStore store = targets_[i];
    if (!store.known()) continue;
    const uint64_t mutation = mutations_.empty() ? 0 : mutations_[i];
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.store == store && g.mutation == mutation;
    });
    if (group == groups.end()) group = groups.insert(group, {store, mutation, {}});
    group->items.push_back(i);
  }
  step_.Begin();
  for (auto& [store, mutation, items] : groups) {
    if (core_->avoid.Contains(store, now)) {
      Again(items);
      continue;
    }
    const absl::StatusOr<StoreTable::Link> link = core_->stores->Connect(store, *ns_);
    const RequestLimits limits = RequestLimits::For(
        link.ok() ? link->channel->peer() : transport::PeerInfo{},
        PutCall::kMetaBytesPerChunk + longest_key_, core_->options.max_inflight_bytes);
    const auto bytes_of = [this](uint32_t i) {
      return PutPayload::StreamBytes({memory_[i], layouts_[i]}, digest_);
    };
    // What goes in a request's own frame keeps the store busy while it is asked for the rest, whose
    // request is therefore started first. The end of the batch goes ahead: the sooner a chunk is
    // stored the sooner it is evicted, and a chain is of use from its front.
    std::vector<uint32_t> ahead =
        TakeSuffix(&items, limits, transport::kInlinePayloadBytes, bytes_of);
    for (auto& some : CutIntoRequests(items, limits, bytes_of)) {
      step_.Add();
      SendBatch(store, std::move(some), /*ask_first=*/true);
    }
    if (!ahead.empty()) {
      step_.Add();
      SendBatch(store, std::move(ahead), /*ask_first=*/false);
    }
  }
  if (step_.End()) OnAllSent();
}

void PutOp::SendBatch(LocalStore store, std::vector<uint32_t> items, bool ask_first) {
  uint64_t bytes = 0;
  for (const uint32_t i : items) {
    bytes += PutPayload::StreamBytes({memory_[i], layouts_[i]}, digest_);
  }
  AcquireBudget(bytes,
                [this, store, bytes, ask_first, items = std::move(items)](bool granted) mutable {
                  if (granted) return StartBatch(store, std::move(items), bytes, ask_first);
                  FailItems(items, Interrupted());
                  if (step_.End()) OnAllSent();
                });
}

void PutOp::StartBatch(LocalStore store, std::vector<uint32_t> items, uint64_t bytes,
                       bool ask_first) {
  const absl::Status interrupted = Interrupted();
  absl::StatusOr<StoreTable::Link> link = interrupted.ok()
                                              ? core_->stores->Connect(store, *ns_)
                                              : absl::StatusOr<StoreTable::Link>(interrupted);
  if (!link.ok()) {
    PutAnswer none;
    OnSent(store, items, bytes, link.status(), none);
    if (step_.End()) OnAllSent();
    return;
  }
  PutBatch batch;
  batch.part_bytes = part_bytes_;
  batch.digest = digest_;
  batch.ask_first = ask_first;
  batch.expiry_unix_ms = expiry_unix_ms_;
  batch.replace = options_.replace;
  if (!mutations_.empty()) batch.mutation = mutations_[items.front()];
  batch.names.reserve(items.size());
  batch.chunks.reserve(items.size());
  for (const uint32_t i : items) {
    batch.names.push_back({items_[i].id, Shard(items_[i].shard)});
    batch.chunks.push_back({memory_[i], layouts_[i]});
    if (ns_->options.keep_keys) batch.keys.push_back(items_[i].key);
  }
  PutCall::Start(shared_from_this(), *link, std::move(batch),
                 [this, store, bytes, items = std::move(items)](const absl::Status& status,
                                                                PutAnswer& answer) {
                   OnSent(store, items, bytes, status, answer);
                   if (step_.End()) OnAllSent();
                 });
}

void PutOp::OnSent(LocalStore store, const std::vector<uint32_t>& items, uint64_t bytes,
                   const absl::Status& status, const PutAnswer& answer) {
  ReleaseBudget(bytes);
  if (!status.ok()) {
    FailItems(items, status);
    if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
      core_->avoid.Add(store, clock().Mono());
    }
    if (absl::IsUnavailable(status) || absl::IsAborted(status)) Again(items);
    return;
  }
  Note(answer.message);
  std::vector<uint32_t> again;
  const MonoTime now = clock().Mono();
  PlacementCache::Writer writer(&core_->placements, kPlacementLifetime);
  for (size_t k = 0; k < items.size(); ++k) {
    const uint32_t i = items[k];
    const ChunkCode code = FromWire(answer.statuses[k]);
    SetCode(i, code);
    if (code == ChunkCode::kOk || code == ChunkCode::kPresent) {
      const ChunkName name{items_[i].id, Shard(items_[i].shard)};
      writer.Add(name, PlacementIn(store));
      core_->fresh.Add(name, store, now);
    } else if (code == ChunkCode::kUnavailable || code == ChunkCode::kAborted) {
      again.push_back(i);
    }
  }
  Again(again);
}

void PutOp::OnAllSent() {
  {
    MutexLock lock(mutex_);
    todo_ = std::exchange(again_, {});
  }
  if (todo_.empty()) return options_.wait_visible ? WaitVisible() : End();
  std::sort(todo_.begin(), todo_.end());  // chain order: the caller's
  core_->counters.retries.fetch_add(1, std::memory_order_relaxed);
  After(PauseOf(rounds_++), [this, self = shared_from_this()] {
    const absl::Status status = Interrupted();
    if (status.ok()) return Place();
    // At the deadline they keep the reason for which they were tried again.
    if (absl::IsCancelled(status)) FailItems(todo_, status);
    End();
  });
}

void PutOp::WaitVisible() {
  for (size_t i = 0; i < items_.size(); ++i) {
    if (result_.items[i].code == ChunkCode::kOk) todo_.push_back(static_cast<uint32_t>(i));
  }
  AskVisible();
}

void PutOp::AskVisible() {
  if (todo_.empty()) return End();
  if (absl::Status status = Interrupted(); !status.ok()) {
    result_.status = Annotate(status, "stored, but lookups do not see it yet");
    return End();
  }
  // Of one shard, as much as one request holds; the rest in the next turns.
  const uint16_t shard = items_[todo_.front()].shard;
  const size_t most = core_->master->KeysPerRequest(1, KeyId::kBytes, 1);
  std::vector<uint32_t> asked;
  for (const uint32_t i : todo_) {
    if (items_[i].shard == shard && asked.size() < most) asked.push_back(i);
  }
  wire::ExistsRequest request;
  request.set_ns_ref(core_->master->Bind(*ns_));
  ColumnWriter<KeyId> ids(request.mutable_ids(), asked.size());
  for (size_t k = 0; k < asked.size(); ++k) ids.Set(k, items_[asked[k]].id);
  request.set_shard_first(shard);
  request.set_shard_count(1);
  MasterCall<wire::ExistsRequest, wire::ExistsReply>::Start(
      shared_from_this(), core_->master.get(), FrameType::kExists, FrameType::kExistsReply,
      std::move(request),
      [this, asked = std::move(asked)](const absl::Status& status, wire::ExistsReply& reply) {
        absl::flat_hash_set<uint32_t> seen;
        for (size_t k = 0; status.ok() && k < asked.size(); ++k) {
          if (BitmapGet(reply.present(), k)) seen.insert(asked[k]);
        }
        todo_.erase(std::remove_if(todo_.begin(), todo_.end(),
                                   [&](uint32_t i) { return seen.contains(i); }),
                    todo_.end());
        if (!seen.empty()) return AskVisible();
        After(FreshPuts::kAskAgain, [this, self = shared_from_this()] { AskVisible(); });
      });
}

void PutOp::End() {
  for (size_t i = 0; i < first_of_.size(); ++i) {
    if (first_of_[i] != UINT32_MAX) result_.items[i] = result_.items[first_of_[i]];
  }
  ClientCounters& counters = core_->counters;
  uint64_t chunks = 0, bytes = 0, present = 0;
  for (const ChunkResult& item : result_.items) {
    chunks += item.code == ChunkCode::kOk ? 1 : 0;
    bytes += item.code == ChunkCode::kOk ? item.length : 0;
    present += item.code == ChunkCode::kPresent ? 1 : 0;
  }
  counters.put_chunks.fetch_add(chunks, std::memory_order_relaxed);
  counters.put_bytes.fetch_add(bytes, std::memory_order_relaxed);
  counters.put_present.fetch_add(present, std::memory_order_relaxed);
  pins_.Release();
  {
    MutexLock lock(mutex_);
    result_.message = std::move(message_);
    // As a whole it failed only if no chunk has an answer of its own.
    if (!failure_.ok() && chunks == 0 && present == 0) result_.status = failure_;
  }
  Finish();
}

void PutOp::Note(std::string_view message) {
  if (message.empty()) return;
  MutexLock lock(mutex_);
  if (message_.empty()) message_ = std::string(message);
}

void PutOp::FailItems(const std::vector<uint32_t>& items, const absl::Status& status) {
  for (const uint32_t i : items) SetCode(i, FromStatus(status));
  Note(StdView(status.message()));
}

void PutOp::Again(const std::vector<uint32_t>& items) {
  if (items.empty()) return;
  MutexLock lock(mutex_);
  again_.insert(again_.end(), items.begin(), items.end());
}

}  // namespace cistern
