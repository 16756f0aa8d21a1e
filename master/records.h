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
};

// Applied twice it changes nothing; a record older than what is known of this replica changes
// nothing. False when it could not be applied (index full, too many replicas, or it contradicts
// what the index has of the chunk): counted, never fatal.
bool ApplyRecord(PoolState& pool, Store& store, const Record& record, MonoTime now);

// Takes a store's replica out of the index as if the store had reported it gone.
// Precondition: it is there.
void DropReplica(PoolState& pool, Store& store, EntryIndex entry, wire::Cause cause);

}  // namespace cistern::master

#endif  // CISTERN_MASTER_RECORDS_H_
