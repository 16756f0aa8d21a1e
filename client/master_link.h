// The way to the master: its channel, the map in use, the namespaces bound.
#ifndef CISTERN_CLIENT_MASTER_LINK_H_
#define CISTERN_CLIENT_MASTER_LINK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "client/namespace_binding.h"
#include "client/store_table.h"
#include "proto/types.pb.h"
#include "transport/channel.h"

namespace cistern {

// Thread-safe. Borrows `stores`.
class MasterLink {
 public:
  MasterLink(std::string address, std::unique_ptr<transport::Channel> channel, StoreTable* stores)
      : address_(std::move(address)), channel_(std::move(channel)), stores_(*stores) {}

  transport::Channel& channel() { return *channel_; }
  StoreTable& stores() { return stores_; }
  // The namespace's ref in requests. Binds it first if need be.
  uint32_t Bind(const NamespaceBinding& ns);

  uint64_t map_version() const;
  // FailedPrecondition: the pool has several partitions, which this version does not know.
  absl::Status Learn(const wire::PartitionMap& map);

  // Chunks and keys per request that the master takes: its limits once known, else the protocol's.
  size_t MaxChunks() const;
  // How many keys of `shard_count` shards fit one request of `bytes_per_key` + `bytes_per_chunk`.
  size_t KeysPerRequest(size_t shard_count, size_t bytes_per_key, size_t bytes_per_chunk) const;

  // The same failure, naming the master and the last reason for which it could not be reached.
  absl::Status Explain(const absl::Status& status) const;

 private:
  const std::string address_;
  const std::unique_ptr<transport::Channel> channel_;
  StoreTable& stores_;
  mutable Mutex mutex_;
  BindList binds_ ABSL_GUARDED_BY(mutex_);
  uint64_t map_version_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_MASTER_LINK_H_
