// The durable state in a RocksDB folder. Layout: docs/formats/master-state.md.
#ifndef CISTERN_MASTER_STATE_STORE_ROCKSDB_H_
#define CISTERN_MASTER_STATE_STORE_ROCKSDB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "master/state_store.h"

namespace rocksdb {
class DB;
}  // namespace rocksdb

namespace cistern::master {

// What a pool is, for ever.
struct PoolIdentity {
  PoolId pool_id;
  uint64_t birth_unix_ms = 0;
};

// Promise: what WhenDurable or Flush confirmed survives a crash of the host. Who waits for one
// thing is told of that alone: what is on disk is not held up by what cannot be written. What could
// not be written (disk full) stays queued, the last change of each thing, and is tried again with
// whatever is waited for next, and every second. Role: MasterCore queues changes under its lock,
// the services wait for them outside of it. Thread-safe. Owns the database and one writer thread,
// which sleeps unless there is something to write.
class RocksStateStore final : public StateStore {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // True when `dir` holds a pool's state.
  static bool Exists(const std::string& dir);
  // Makes a pool in `dir`. AlreadyExists when it holds one.
  static absl::Status Create(const std::string& dir, const PoolIdentity& pool);
  // NotFound: no pool there. FailedPrecondition: another process has it open, or it was written by
  // a newer version. DataLoss: damaged. ResourceExhausted: the disk is full.
  static absl::StatusOr<std::unique_ptr<RocksStateStore>> Open(const std::string& dir);
  // Makes a last attempt at what is queued.
  ~RocksStateStore() override;

  const PoolIdentity& pool() const { return pool_; }

  // Before anything is saved.
  absl::StatusOr<DurableState> Load() override;
  // These three only queue, and always succeed.
  absl::Status SaveNamespace(const wire::NamespaceInfo& info) override;
  absl::Status RemoveNamespace(const NamespaceId& id) override;
  absl::Status SaveEpoch(Epoch epoch) override;

  // Runs `done` once what was last queued of the namespace is on disk, or could not be written. On
  // the writer thread; at once, on the caller's, when it is on disk. It must not block.
  void WhenNamespaceDurable(const NamespaceId& id, Done done);
  void WhenEpochDurable(Done done);
  // Whether a change of the namespace is queued, or was queued and could not be written.
  bool NamespaceUnwritten(const NamespaceId& id) const;
  // Waits until all that was queued before is on disk, or could not be written. Not from `done`.
  absl::Status Flush();
  // How the last attempt to write ended.
  absl::Status last_write() const;

 private:
  // By key: what its value is to be, none = deleted. One batch, so their order does not matter.
  using Changes = absl::flat_hash_map<std::string, std::optional<std::string>>;
  struct Waiter {
    std::string key;  // empty = all of them
    Done done;
  };

  RocksStateStore(std::string dir, std::unique_ptr<rocksdb::DB> db, PoolIdentity pool);
  void Queue(const std::string& key, std::optional<std::string> value);
  void WhenDurable(std::string key, Done done);
  bool UnwrittenLocked(const std::string& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunWriter();
  // Waits until there is something to do. True when it was the last time.
  bool WaitForWorkLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(const Changes& changes);
  static absl::Status WriteTo(rocksdb::DB& db, const Changes& changes, const std::string& dir);

  const std::string dir_;
  // The writer's, once it runs; null: what was to be written could not be, and RocksDB is not to be
  // asked again.
  std::unique_ptr<rocksdb::DB> db_;
  const PoolIdentity pool_;

  mutable Mutex mutex_;
  CondVar wake_;
  Changes queued_ ABSL_GUARDED_BY(mutex_);
  Changes writing_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiting_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_write_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_STATE_STORE_ROCKSDB_H_
