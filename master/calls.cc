#include "master/calls.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "master/pool_state.h"

namespace cistern::master {

absl::Status ChunkBatch::Parse(std::string_view ids, uint32_t shard_first, uint32_t shard_count) {
  CISTERN_ASSIGN_OR_RETURN(ids_, KeyColumn::Parse(ids));
  shard_first_ = shard_first;
  shard_count_ = shard_count == 0 ? 1 : shard_count;
  if (shard_first > Shard::kMax || shard_count_ > Shard::kMax + 1u - shard_first) {
    return absl::InvalidArgumentError(absl::StrCat("shards ", shard_first, " to ", shard_first, "+",
                                                   shard_count_, ": the last one is 4095"));
  }
  if (ids_.size() > kMaxKeysPerRequest || chunks() > kMaxChunksPerRequest) {
    return absl::InvalidArgumentError(
        absl::StrCat(ids_.size(), " keys x ", shard_count_, " shards: at most ", kMaxKeysPerRequest,
                     " keys and ", kMaxChunksPerRequest, " chunks a request"));
  }
  return absl::OkStatus();
}

void ChunkBatch::Unpack(size_t begin, size_t end, std::vector<KeyId>* ids,
                        std::vector<Shard>* shards) const {
  ids->resize(end - begin);
  shards->resize(end - begin);
  for (size_t i = begin; i < end; ++i) {
    (*ids)[i - begin] = id(i);
    (*shards)[i - begin] = shard(i);
  }
}

void FoundSlice::Find(const PoolState& pool, const ChunkBatch& batch, NamespaceIndex ns,
                      size_t begin, size_t end) {
  batch.Unpack(begin, end, &ids, &shards);
  entries.resize(end - begin);
  pool.index.FindBatch(end - begin, ids.data(), shards.data(), entries.data());
  for (EntryIndex& entry : entries) {
    if (!entry.none() && pool.index.at(entry).ns() != ns) entry = EntryIndex(EntryIndex::kNone);
  }
}

bool BeginCall(const PoolState& pool, uint64_t map_version, uint32_t ns_ref,
               const std::function<wire::PartitionMap*()>& reply_map, NamespaceIndex* ns,
               absl::Status* status) {
  if (map_version != pool.map.version()) {
    *reply_map() = pool.map;
    return false;
  }
  if (ns_ref == 0 || !pool.namespaces.Has(NamespaceIndex(ns_ref - 1))) {
    *status = absl::FailedPreconditionError(
        absl::StrCat("ns_ref ", ns_ref, " names no namespace: open or bind one first"));
    return false;
  }
  *ns = NamespaceIndex(ns_ref - 1);
  return true;
}

}  // namespace cistern::master
