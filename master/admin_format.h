// The core's views as the admin service's messages.
#ifndef CISTERN_MASTER_ADMIN_FORMAT_H_
#define CISTERN_MASTER_ADMIN_FORMAT_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "master/admin_views.h"
#include "master/hold_times.h"
#include "proto/admin.pb.h"

namespace cistern::master {

// "dram", "ssd", "cold"; several joined by '+'.
std::string TierNames(uint32_t mask);

void FormatTier(const wire::TierUsage& usage, admin::TierStats* out);
void FormatStore(const StoreView& store, admin::StoreStats* out);
void FormatNamespace(const NamespaceView& ns, admin::NamespaceStats* out);
// `store` is the name of the segment's store.
void FormatSegment(const std::string& store, const wire::SegmentInfo& segment,
                   admin::SegmentStats* out);
// The pool's own numbers, and the sums over the stores that serve.
void FormatPool(const PoolView& pool, const std::vector<StoreView>& stores, admin::PoolStats* out);
void FormatHoldTimes(const HoldTimes& times, admin::PoolStats* out);

// Names for the numbers in a ChunkView.
struct ChunkNames {
  absl::flat_hash_map<uint32_t, std::string> stores;      // by StoreIndex
  absl::flat_hash_map<uint32_t, std::string> namespaces;  // by NamespaceIndex
};
void FormatChunk(const ChunkView& chunk, const ChunkNames& names, admin::ChunkInfo* out);

}  // namespace cistern::master

#endif  // CISTERN_MASTER_ADMIN_FORMAT_H_
