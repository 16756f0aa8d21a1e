#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "master/calls.h"
#include "master/evictor.h"
#include "master/master_core.h"
#include "master/pool_state.h"
#include "master/records.h"

namespace cistern::master {
namespace {

bool OnHost(const Store& store, const BootId& host) {
  if (host.IsZero()) return false;
  return std::any_of(store.endpoints.begin(), store.endpoints.end(),
                     [&host](const wire::Endpoint& e) { return e.boot_id() == host.view(); });
}

// The chunk is written anew in `store`: whoever had it, or was to get it, and is away, must not
// come back with older bytes.
void DistrustOthers(PoolState& pool, const ChunkName& name, StoreIndex placed_before,
                    StoreIndex store, uint64_t mutation) {
  const auto distrust = [&](StoreIndex index) {
    Store* other = pool.stores.at(index);
    if (index == store || other == nullptr || pool.SessionOf(*other) != nullptr) return;
    Distrust(*other, mutation);
  };
  distrust(placed_before);
  const EntryIndex entry = pool.index.Find(name.id, name.shard);
  if (entry.none()) return;
  pool.index.ForEachReplica(entry, [&](const ReplicaSlot& slot) {
    distrust(slot.store());
    return true;
  });
}

// The stores that can take chunks now.
std::vector<PlacementCandidate> Candidates(PoolState& pool, const BootId& host, MonoTime now) {
  std::vector<PlacementCandidate> out;
  for (auto& store : pool.stores.all()) {
    TierState& dram = store->dram();
    if (!pool.stores.Placeable(*store) || dram.capacity_bytes == 0) continue;
    const uint64_t used = pool.ProjectedBytes(*store, 0);
    if (used >= dram.capacity_bytes) continue;
    PlacementCandidate c;
    c.store = store->index;
    c.capacity_bytes = dram.capacity_bytes;
    const auto low = static_cast<uint64_t>(pool.options.low_watermark *
                                           static_cast<double>(dram.capacity_bytes));
    c.free_bytes = used < low ? low - used : 0;
    c.oldest_age = now - OldestArrival(pool.index, dram, store->index, kDram, now);
    c.same_host = OnHost(*store, host);
    out.push_back(c);
  }
  return out;
}

}  // namespace

absl::Status PlaceCall::Prepare() {
  CISTERN_RETURN_IF_ERROR(
      batch_.Parse(request_.ids(), request_.shard_first(), request_.shard_count()));
  CISTERN_ASSIGN_OR_RETURN(lengths_,
                           Column<uint32_t>::Parse(request_.lengths(), batch_.chunks(), "lengths",
                                                   batch_.chunks() == 0, true));
  for (size_t i = 0; i < batch_.chunks(); ++i) {
    if (lengths_[i] < kMinChunkBytes || lengths_[i] > kMaxChunkBytes) {
      return absl::InvalidArgumentError(absl::StrCat("chunk ", i, " of the batch has ", lengths_[i],
                                                     " bytes: 4 KiB to 1 GiB are allowed"));
    }
  }
  CISTERN_ASSIGN_OR_RETURN(operation_, OperationId::Parse(request_.operation_id()));
  if (!request_.host_boot_id().empty()) {
    CISTERN_ASSIGN_OR_RETURN(host_, BootId::Parse(request_.host_boot_id()));
  }
  return absl::OkStatus();
}

bool PlaceCall::Start(PoolState& pool) {
  started_ = true;
  if (!BeginCall(
          pool, request_.map_version(), request_.ns_ref(), [this] { return reply_.mutable_map(); },
          &ns_, &status_)) {
    return false;
  }
  mutable_ = pool.IsMutable(ns_);
  if (request_.replace() && !mutable_) {
    status_ = absl::FailedPreconditionError(
        absl::StrCat("replace: the chunks of namespace \"", pool.namespaces.at(ns_).info.name(),
                     "\" are immutable; open one with the option mutable"));
    return false;
  }
  if (mutable_) reply_.set_mutation(pool.NextMutation());
  const size_t n = batch_.chunks();
  reply_.mutable_present()->assign(BitmapBytes(n), '\0');
  reply_.mutable_in_progress()->assign(BitmapBytes(n), '\0');
  reply_.mutable_refused()->assign(BitmapBytes(n), '\0');
  reply_.mutable_stores()->assign(2 * n, '\xFF');
  return true;
}

bool PlaceCall::Step(MasterCore& core, MonoTime now) {
  PoolState& pool = core.pool();
  if (!started_ && !Start(pool)) return true;
  if (next_find_ < batch_.chunks()) {
    FindSlice(pool, now);
    if (next_find_ < batch_.chunks()) return false;
  }
  if (!decided_) Decide(pool, now);
  if (!evicts_) AssignSlice(pool, now);
  if (!EvictStep(pool, now) || next_assign_ < batch_.chunks()) return false;
  Finish(pool, now);
  return true;
}

void PlaceCall::FindSlice(PoolState& pool, MonoTime now) {
  const size_t end = std::min<size_t>(batch_.chunks(), next_find_ + kSliceKeys);
  slice_.Find(pool, batch_, ns_, next_find_, end);
  for (size_t i = next_find_; i < end; ++i) {
    const EntryIndex entry = slice_.entries[i - next_find_];
    if (request_.replace() ? StayInStore(pool, i, entry, now) : SetPresent(pool, i, entry, now)) {
      ++present_;
      if (run_open_) std::memcpy(&ancestor_.value, reply_.stores().data() + 2 * i, 2);
    } else {
      run_open_ = false;
      absent_bytes_ += ExtentBytesFor(lengths_[i]);
    }
  }
  next_find_ = end;
}

void PlaceCall::SetStore(size_t chunk, StoreIndex store) {
  std::memcpy(reply_.mutable_stores()->data() + 2 * chunk, &store.value, 2);
}

// A put of what is there is a use of it, as a read is.
bool PlaceCall::SetPresent(PoolState& pool, size_t chunk, EntryIndex entry, MonoTime now) {
  if (entry.none() || pool.Expired(entry)) return false;
  bool found = false;
  pool.index.ForEachReplica(entry, [&](const ReplicaSlot& slot) {
    found = pool.stores.Readable(slot);
    if (found) SetStore(chunk, slot.store());
    return !found;
  });
  if (!found) return false;
  BitmapSet(reply_.mutable_present(), chunk);
  pool.index.at(entry).heat.Touch(LeaseTable::TickOf(now));
  return true;
}

bool PlaceCall::StayInStore(PoolState& pool, size_t chunk, EntryIndex entry, MonoTime now) {
  if (entry.none()) return false;
  Store* holder = nullptr;
  pool.index.ForEachReplica(entry, [&](const ReplicaSlot& slot) {
    Store& store = *pool.stores.at(slot.store());
    // Silent for a while, but not gone: only there can the old bytes be replaced.
    if (pool.SessionOf(store) != nullptr) holder = &store;
    return holder == nullptr;
  });
  if (holder == nullptr) return false;
  SetStore(chunk, holder->index);
  // The second copy needs room. Whether it is noted or not, the store has the last word.
  const ChunkName name{batch_.id(chunk), batch_.shard(chunk)};
  (void)pool.in_progress.Add(name, {operation_, holder->index, lengths_[chunk]}, now);
  if (std::find(staying_.begin(), staying_.end(), holder->index) == staying_.end()) {
    staying_.push_back(holder->index);
  }
  BitmapSet(reply_.mutable_present(), chunk);
  pool.index.at(entry).heat.Touch(LeaseTable::TickOf(now));
  return true;
}

void PlaceCall::Decide(PoolState& pool, MonoTime now) {
  decided_ = true;
  if (absent_bytes_ == 0) return;
  PlacementRequest request;
  request.chain_chunks = batch_.chunks();
  request.present_chunks = present_;
  request.ancestor = ancestor_;
  request.absent_bytes = absent_bytes_;
  runs_ = PlacementPolicy::Choose(request, Candidates(pool, host_, now));
}

void PlaceCall::AssignSlice(PoolState& pool, MonoTime now) {
  const size_t end = std::min<size_t>(batch_.chunks(), next_assign_ + kSliceKeys);
  made_room_ = false;
  while (next_assign_ < end) {
    if (!BitmapGet(reply_.present(), next_assign_) && !Assign(pool, next_assign_, now)) return;
    ++next_assign_;
  }
  evicts_ = true;
}

// Room is made while the bytes are on their way.
bool PlaceCall::EvictStep(PoolState& pool, MonoTime now) {
  if (!evicts_) return false;
  HuntStep sum;
  while (next_evict_ < runs_.size() + staying_.size()) {
    if (sum.looks > 0) return false;
    const StoreIndex store = next_evict_ < runs_.size() ? runs_[next_evict_].store
                                                        : staying_[next_evict_ - runs_.size()];
    const HuntStep step = EvictToWatermark(pool, *pool.stores.at(store), now);
    if (step.more) return false;
    sum += step;
    ++next_evict_;
  }
  next_evict_ = 0;
  evicts_ = false;
  return true;
}

bool PlaceCall::Assign(PoolState& pool, size_t chunk, MonoTime now) {
  const ChunkName name{batch_.id(chunk), batch_.shard(chunk)};
  if (mutable_ && !request_.replace()) {
    // There, though no reader can be sent to it now (it is told to go, or has just expired).
    const EntryIndex entry = pool.index.Find(name.id, name.shard);
    if (!entry.none() && pool.index.at(entry).ns() == ns_ && StayInStore(pool, chunk, entry, now)) {
      reply_.mutable_present()->at(chunk / 8) &= static_cast<char>(~(1 << chunk % 8));
      return true;
    }
  }
  const InProgressTable::Placement* placed = pool.in_progress.Find(name, now);
  // A placement in a store that has died meanwhile is void.
  if (placed != nullptr && pool.stores.Placeable(*pool.stores.at(placed->store))) {
    // Replaces of one chunk meet in one store, which puts them in order.
    if (placed->operation == operation_ || request_.replace()) {
      SetStore(chunk, placed->store);
    } else {
      BitmapSet(reply_.mutable_in_progress(), chunk);
      ++pool.counters.place_in_progress;
    }
    return true;
  }
  const StoreIndex before = placed == nullptr ? StoreIndex(StoreIndex::kNone) : placed->store;
  if (runs_.empty()) {
    Refuse(pool, chunk, PlaceRefusal::kNoStore, "no store is serving with room for it");
    return true;
  }
  const std::optional<StoreIndex> next = NextStore(pool, ExtentBytesFor(lengths_[chunk]), now);
  if (!next.has_value()) return false;
  const StoreIndex store = *next;
  if (store.value == StoreIndex::kNone) {
    Refuse(pool, chunk, PlaceRefusal::kNoRoom,
           "the chosen stores are full of chunks that cannot go yet");
    return true;
  }
  if (!pool.in_progress.Add(name, {operation_, store, lengths_[chunk]}, now)) {
    Refuse(pool, chunk, PlaceRefusal::kTableFull, "too many chunks are being put at once");
    return true;
  }
  ++pool.counters.place_placed;
  SetStore(chunk, store);
  if (mutable_) DistrustOthers(pool, name, before, store, reply_.mutation());
  return true;
}

// Needed by a batch that is much of a small store. A store full of what cannot go is asked once,
// not for every chunk.
std::optional<bool> PlaceCall::MakeRoom(PoolState& pool, PlacementRun& run, uint64_t bytes,
                                        MonoTime now) {
  Store& store = *pool.stores.at(run.store);
  const auto full = [&] {
    return pool.ProjectedBytes(store, 0) + bytes > store.dram().capacity_bytes;
  };
  if (!full()) return true;
  if (run.given_up) return false;
  if (made_room_) return std::nullopt;
  made_room_ = true;
  const HuntStep step = EvictToWatermark(pool, store, now);
  if (!full()) return true;
  if (step.more) return std::nullopt;
  run.given_up = true;
  return false;
}

// The store whose turn it is: contiguous runs, each until its share is used up; the last one takes
// what is left. When the chosen ones cannot make room, any that has some. None when none has.
std::optional<StoreIndex> PlaceCall::NextStore(PoolState& pool, uint64_t bytes, MonoTime now) {
  while (run_ + 1 < runs_.size() && runs_[run_].bytes == 0) ++run_;
  for (; run_ < runs_.size(); ++run_) {
    PlacementRun& run = runs_[run_];
    if (!pool.stores.Placeable(*pool.stores.at(run.store))) continue;
    const std::optional<bool> room = MakeRoom(pool, run, bytes, now);
    if (!room.has_value()) return std::nullopt;
    if (!*room) continue;
    run.bytes -= std::min(run.bytes, bytes);
    return run.store;
  }
  // What they hold is leased, pinned, or may be leased by the master before this one.
  if (const StoreIndex other = RoomiestStore(pool, bytes); other.value != StoreIndex::kNone) {
    runs_.push_back({other, 0});
    run_ = runs_.size() - 1;
    return other;
  }
  run_ = 0;  // another one may have got room meanwhile
  return StoreIndex(StoreIndex::kNone);
}

// The store with the most room of those that need not evict to take `bytes`; none when there is
// none. In a batch it is asked at most once in vain for a size.
StoreIndex PlaceCall::RoomiestStore(PoolState& pool, uint64_t bytes) {
  StoreIndex best(StoreIndex::kNone);
  if (bytes >= no_room_for_) return best;
  uint64_t most = 0;
  for (const auto& store : pool.stores.all()) {
    if (!pool.stores.Placeable(*store)) continue;
    const uint64_t used = pool.ProjectedBytes(*store, 0);
    const uint64_t capacity = store->dram().capacity_bytes;
    if (used >= capacity || capacity - used < bytes || capacity - used <= most) continue;
    most = capacity - used;
    best = store->index;
  }
  if (best.value == StoreIndex::kNone) no_room_for_ = bytes;
  return best;
}

void PlaceCall::Refuse(PoolState& pool, size_t chunk, PlaceRefusal reason, std::string_view why) {
  BitmapSet(reply_.mutable_refused(), chunk);
  ++pool.counters.place_refused;
  ++pool.counters.place_refused_by[static_cast<size_t>(reason)];
  if (reply_.refused_reason().empty()) reply_.set_refused_reason(std::string(why));
}

void PlaceCall::Finish(PoolState& pool, MonoTime) {
  if (request_.directory_version() != pool.stores.directory_version()) {
    pool.stores.FillDirectory(reply_.mutable_directory());
  }
  ++pool.counters.places;
  pool.counters.place_present += present_;
}

}  // namespace cistern::master
