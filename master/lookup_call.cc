#include <algorithm>

#include "master/calls.h"
#include "master/master_core.h"
#include "master/pool_state.h"

namespace cistern::master {

namespace {

// Chunks of a lease that room is made for before they were found.
constexpr size_t kMaxReserved = 8192;

}  // namespace

absl::Status LookupCall::Prepare() {
  return batch_.Parse(request_.ids(), request_.shard_first(), request_.shard_count());
}

bool LookupCall::Start(PoolState& pool, MonoTime) {
  started_ = true;
  if (!BeginCall(
          pool, request_.map_version(), request_.ns_ref(), [this] { return reply_.mutable_map(); },
          &ns_, &status_)) {
    return false;
  }
  const size_t n = batch_.chunks();
  reply_.mutable_present()->assign(BitmapBytes(batch_.keys()), '\0');
  reply_.mutable_stores()->assign(2 * n, '\xFF');
  reply_.set_replica_columns(1);
  if (request_.want_lengths()) reply_.mutable_lengths()->assign(4 * n, '\0');
  const auto longest = static_cast<uint32_t>(absl::ToInt64Milliseconds(pool.options.max_lease));
  const auto usual = static_cast<uint32_t>(absl::ToInt64Milliseconds(pool.options.lease));
  lease_ms_ = std::min(longest, request_.lease_ms() == 0 ? usual : request_.lease_ms());
  lease_open_ = !request_.no_lease();
  return true;
}

bool LookupCall::Step(MasterCore& core, MonoTime now) {
  PoolState& pool = core.pool();
  if (!started_ && !Start(pool, now)) return true;
  const size_t keys = std::max<size_t>(1, kSliceKeys / batch_.shard_count());
  const size_t end = std::min(batch_.keys(), next_key_ + keys);
  LookupSlice(pool, next_key_, end, now);
  next_key_ = end;
  if (end < batch_.keys()) return false;
  Finish(pool);
  return true;
}

void LookupCall::LookupSlice(PoolState& pool, size_t begin_key, size_t end_key, MonoTime now) {
  const size_t shards = batch_.shard_count();
  slice_.Find(pool, batch_, ns_, begin_key * shards, end_key * shards);
  grant_ = pool.leases.Open(lease_);
  now_tick_ = LeaseTable::TickOf(now);
  stores_ = reply_.mutable_stores()->data();
  for (size_t key = begin_key; key < end_key; ++key) {
    const EntryIndex* entries = &slice_.entries[(key - begin_key) * shards];
    if (!LookupKey(pool, key, entries)) {
      run_open_ = false;
      continue;
    }
    ++hits_;
    BitmapSet(reply_.mutable_present(), key);
    if (run_open_) reply_.set_leading_run(static_cast<uint32_t>(key + 1));
    if (lease_open_ && (run_open_ || request_.sparse())) LeaseKey(pool, entries, now);
  }
}

bool LookupCall::LookupKey(PoolState& pool, size_t key, const EntryIndex* entries) {
  const size_t shards = batch_.shard_count();
  bool complete = true;
  for (size_t s = 0; s < shards; ++s) {
    if (LookupChunk(pool, key * shards + s, entries[s])) continue;
    if (complete) {  // the first that is missing explains the key's miss
      if (!entries[s].none()) {
        bool evicting = false;
        pool.index.ForEachReplica(entries[s], [&](const ReplicaSlot& slot) {
          evicting = evicting || slot.evicting() != 0;
          return true;
        });
        ++(evicting ? pool.counters.miss_evicted : pool.counters.miss_dead_store);
      } else if (pool.evicted.Contains(batch_.id(key * shards + s),
                                       batch_.shard(key * shards + s))) {
        ++pool.counters.miss_evicted;
      } else {
        ++pool.counters.miss_absent;
      }
    }
    complete = false;
  }
  return complete;
}

// Writes the columns of one chunk; false when no reader can be sent to it.
bool LookupCall::LookupChunk(PoolState& pool, size_t chunk, EntryIndex entry) {
  if (entry.none() || pool.Expired(entry)) return false;
  int found = 0;
  pool.index.ForEachReplica(entry, [&](ReplicaSlot& slot) {
    if (!pool.stores.Readable(slot)) return true;
    const StoreIndex store = slot.store();
    if (found == 0) {
      std::memcpy(stores_ + 2 * chunk, &store.value, 2);
      PutTiers(pool, chunk, slot.readable_tiers());
    } else {
      PutSecondColumn(chunk, store);
    }
    return ++found < 2;
  });
  if (found == 0) return false;
  IndexEntry& e = pool.index.at(entry);
  e.heat.Touch(now_tick_);
  if (request_.want_lengths()) {
    std::memcpy(reply_.mutable_lengths()->data() + 4 * chunk, &e.length, 4);
  }
  return true;
}

void LookupCall::PutSecondColumn(size_t chunk, StoreIndex store) {
  std::string& stores = *reply_.mutable_stores();
  if (reply_.replica_columns() == 1) {
    stores.append(2 * batch_.chunks(), '\xFF');
    stores_ = stores.data();
    reply_.set_replica_columns(2);
  }
  std::memcpy(stores_ + 2 * (batch_.chunks() + chunk), &store.value, 2);
}

void LookupCall::PutTiers(PoolState&, size_t chunk, TierMask tiers) {
  std::string& column = *reply_.mutable_tiers();
  if (column.empty()) {
    if (tiers == kDram) return;
    // The first that is elsewhere: until now every present one was in DRAM.
    column.assign(batch_.chunks(), static_cast<char>(kDram));
  }
  column[chunk] = static_cast<char>(tiers);
}

void LookupCall::LeaseKey(PoolState& pool, const EntryIndex* entries, MonoTime now) {
  if (lease_.none()) {
    lease_ = pool.leases.Begin(now + absl::Milliseconds(lease_ms_), now);
    grant_ = pool.leases.Open(lease_);
    lease_open_ = grant_.live();
    leased_.reserve(std::min(batch_.chunks(), kMaxReserved));
  }
  for (size_t s = 0; s < batch_.shard_count() && lease_open_; ++s) {
    IndexEntry& entry = pool.index.at(entries[s]);
    pool.index.ForEachReplica(entries[s], [&](const ReplicaSlot& slot) {
      if (pool.stores.Readable(slot)) {
        if (slot.store() != limit_store_) {
          limit_store_ = slot.store();
          limit_bytes_ = pool.LeaseLimit(limit_store_);
        }
        lease_open_ = grant_.Charge(limit_store_, ExtentBytesFor(entry.length), limit_bytes_);
      }
      return lease_open_;
    });
    if (!lease_open_) return;
    entry.heat.AddLease(grant_.until_tick(), now_tick_);
    leased_.push_back({entries[s], entry.replicas[0].version_low()});
  }
  if (lease_open_) ++leased_keys_;
}

void LookupCall::Finish(PoolState& pool) {
  const LeaseId id = pool.leases.id(lease_);
  if (leased_keys_ > 0 && !id.IsZero()) {
    reply_.set_lease_id(id.bytes.data(), id.bytes.size());
    reply_.set_lease_ms(lease_ms_);
    reply_.set_leased_keys(leased_keys_);
    pool.leases.SetEntries(lease_, leased_);
  } else {
    pool.leases.Abandon(lease_);
    leased_keys_ = 0;
  }
  const uint64_t wanted = request_.sparse() ? hits_ : reply_.leading_run();
  if (!request_.no_lease() && leased_keys_ < wanted) {
    reply_.set_lease_shortened(true);
    ++pool.counters.lease_refused;
  }
  if (request_.directory_version() != pool.stores.directory_version()) {
    pool.stores.FillDirectory(reply_.mutable_directory());
  }
  ++pool.counters.lookups;
  pool.counters.lookup_keys += batch_.keys();
  pool.counters.lookup_hits += hits_;
  NamespaceCounters& ns = pool.namespaces.counters(ns_);
  ns.lookup_keys += batch_.keys();
  ns.lookup_hits += hits_;
}

}  // namespace cistern::master
