// The durable state in a RocksDB folder. Layout: docs/formats/master-state.md.
#ifndef CISTERN_MASTER_STATE_STORE_ROCKSDB_H_
#define CISTERN_MASTER_STATE_STORE_ROCKSDB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

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

// Promise: what WhenDurable or Flush confirmed survives a crash of the host. What could not be
// written (disk full) stays queued and goes with the next attempt. Role: MasterCore queues changes
// under its lock, the services wait for them outside of it. Thread-safe. Owns the database and one
// writer thread, which sleeps unless there is something to write.
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

  absl::StatusOr<DurableState> Load() override;
  // These three only queue, and always succeed.
  absl::Status SaveNamespace(const wire::NamespaceInfo& info) override;
  absl::Status RemoveNamespace(const NamespaceId& id) override;
  absl::Status SaveEpoch(Epoch epoch) override;

  // Whether anything is queued, or was queued and could not be written.
  bool HasUnwritten() const;
  // Runs `done` once all that was queued before is on disk, or could not be written. On the writer
  // thread; at once, on the caller's, when nothing is queued. It must not block.
  void WhenDurable(Done done);
  // The same, waiting. Not from `done`.
  absl::Status Flush();

 private:
  // A change of one key; no value = deleted.
  struct Change {
    std::string key;
    std::string value;
    bool deleted = false;
  };

  RocksStateStore(std::string dir, std::unique_ptr<rocksdb::DB> db, PoolIdentity pool);
  void Queue(Change change);
  void RunWriter();
  absl::Status Write(const std::vector<Change>& changes);

  const std::string dir_;
  const std::unique_ptr<rocksdb::DB> db_;
  const PoolIdentity pool_;

  mutable Mutex mutex_;
  CondVar wake_;
  std::vector<Change> queued_ ABSL_GUARDED_BY(mutex_);
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_STATE_STORE_ROCKSDB_H_
