// Removals that an administrator asks for.
#ifndef CISTERN_MASTER_ADMIN_REMOVALS_H_
#define CISTERN_MASTER_ADMIN_REMOVALS_H_

#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "master/core_driver.h"
#include "master/state_store_rocksdb.h"
#include "proto/admin.pb.h"

namespace cistern::master {

// Promise: each request ends by `done`, once, at its deadline at the latest; what the stores have
// not reported by then is counted as pending and goes on. `done` may run before the call returns,
// without a lock held, on any thread. Role: the admin service calls it. Thread-safe. Borrows.
class AdminRemovals {
 public:
  static constexpr int kMaxNames = 4096;

  AdminRemovals(CoreDriver& driver, RocksStateStore& state) : driver_(driver), state_(state) {}

  // InvalidArgument: what is meant is not clear. NotFound: no such namespace.
  using ChunksDone = absl::AnyInvocable<void(absl::Status, const admin::RemoveChunksReply&)>;
  void RemoveChunks(const admin::RemoveChunksRequest& request, MonoTime deadline, ChunksDone done);

  // FailedPrecondition: chunks are leased or pinned, or in stores that are away, and it was not
  // forced; the rest is gone, the name stays. DeadlineExceeded: not all stores have reported; the
  // name stays, repeat it.
  using NamespaceDone = absl::AnyInvocable<void(absl::Status, const admin::RemoveNamespaceReply&)>;
  void RemoveNamespace(const admin::RemoveNamespaceRequest& request, MonoTime deadline,
                       NamespaceDone done);

 private:
  void DropName(const std::string& name, uint64_t removed, NamespaceDone done);

  CoreDriver& driver_;
  RocksStateStore& state_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_ADMIN_REMOVALS_H_
