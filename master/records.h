// Applies what stores report to the index: the only way in which it changes.
#ifndef CISTERN_MASTER_RECORDS_H_
#define CISTERN_MASTER_RECORDS_H_

#include <cstdint>

#include "base/clock.h"
#include "base/ids.h"
#include "master/types.h"
#include "proto/store.pb.h"

namespace cistern::master {

struct PoolState;
struct Store;

// "The store holds this chunk in these tiers at this version"; no tiers = it holds it no more.
struct Record {
  KeyId id;
  Shard shard;
  NamespaceIndex ns;
  Version version;
  TierMask tiers = 0;
  uint32_t length = 0;
  uint32_t expiry_unix_s = 0;
  wire::Cause cause = wire::CAUSE_NONE;
  uint64_t mutation = 0;  // of a mutable namespace
};

// Applied twice it changes nothing; a record older than what is known of this replica changes
// nothing. False when it could not be applied (index full, too many replicas, or it contradicts
// what the index has of the chunk): counted, never fatal.
// In a mutable namespace a chunk has one replica. Of two stores that report it the one with the
// higher mutation has the newer bytes; the other is told to drop its own, or distrusted until it
// comes back.
bool ApplyRecord(PoolState& pool, Store& store, const Record& record, MonoTime now);

// From now on what the store has of mutable namespaces by placements before `mutation` is old.
// Precondition: it has no session: its next one begins with a snapshot.
void Distrust(Store& store, uint64_t mutation);

// Takes a store's replica out of the index as if the store had reported it gone.
// Precondition: it is there.
void DropReplica(PoolState& pool, Store& store, EntryIndex entry, wire::Cause cause);

}  // namespace cistern::master

#endif  // CISTERN_MASTER_RECORDS_H_
