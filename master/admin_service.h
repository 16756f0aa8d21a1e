// cisternctl's questions and orders: proto/admin.proto.
#ifndef CISTERN_MASTER_ADMIN_SERVICE_H_
#define CISTERN_MASTER_ADMIN_SERVICE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "master/admin_removals.h"
#include "master/core_driver.h"
#include "master/segment_commands.h"
#include "master/state_store_rocksdb.h"
#include "proto/admin.grpc.pb.h"

namespace cistern::master {

// What `authorization` metadata must say when there is a token.
std::string AdminAuthorization(std::string_view token, const PoolId& pool_id);

// Promise: without the right metadata only Version is answered (when there is a token); what must
// wait for stores ends at the RPC's deadline. The core's lock is held for one slice at a time.
// Role: gRPC calls it, on its threads. Thread-safe. Borrows driver and state.
class AdminService final : public admin::Admin::CallbackService {
 public:
  struct Options {
    std::string token;
    PoolId pool_id;
    std::string software_version;
    std::string build_mode;
    std::string commit;
    // For RPCs that name no deadline, or one beyond the longest.
    absl::Duration default_deadline = absl::Seconds(30);
    absl::Duration max_deadline = absl::Hours(1);
    // Evict waits for the stores, but no longer.
    absl::Duration max_evict_wait = absl::Seconds(5);
    std::function<uint64_t()> client_connections;
  };
  AdminService(Options options, CoreDriver& driver, RocksStateStore& state,
               SegmentCommands& segment_commands);

  // Ends the Evict calls whose stores have reported or whose time has come. Every 100 ms or so.
  void Sweep();
  // Ends all of them, and lets no other wait: the daemon stops.
  void Close();

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* Stats(Context* context, const admin::StatsRequest* request,
                 admin::StatsReply* reply) override;
  Reactor* Segments(Context* context, const admin::SegmentsRequest* request,
                    admin::SegmentsReply* reply) override;
  Reactor* MountSegment(Context* context, const admin::MountSegmentRequest* request,
                        admin::MountSegmentReply* reply) override;
  Reactor* UnmountSegment(Context* context, const admin::UnmountSegmentRequest* request,
                          admin::UnmountSegmentReply* reply) override;
  Reactor* ListChunks(Context* context, const admin::ListChunksRequest* request,
                      admin::ListChunksReply* reply) override;
  Reactor* StatChunk(Context* context, const admin::StatChunkRequest* request,
                     admin::StatChunkReply* reply) override;
  Reactor* RemoveChunks(Context* context, const admin::RemoveChunksRequest* request,
                        admin::RemoveChunksReply* reply) override;
  Reactor* Evict(Context* context, const admin::EvictRequest* request,
                 admin::EvictReply* reply) override;
  Reactor* RemoveNamespace(Context* context, const admin::RemoveNamespaceRequest* request,
                           admin::RemoveNamespaceReply* reply) override;
  Reactor* Version(Context* context, const admin::VersionRequest* request,
                   admin::VersionReply* reply) override;

 private:
  // An Evict whose victims the stores have not all reported.
  struct WaitingEvict {
    Reactor* reactor;
    MonoTime until;
    uint64_t evicting_before;
  };

  absl::Status Authorise(const Context& context) const;
  MonoTime Deadline(const Context& context) const;
  // Answers at once with what `fn` returns.
  template <typename Fn>
  Reactor* Answer(Context* context, Fn&& fn);
  absl::Status ListInto(const admin::ListChunksRequest& request, MonoTime until,
                        admin::ListChunksReply* reply);
  absl::Status StatInto(const admin::StatChunkRequest& request, admin::StatChunkReply* reply);
  absl::Status EvictInto(const admin::EvictRequest& request, MonoTime until,
                         admin::EvictReply* reply);
  uint64_t EvictingBytes();

  const Options options_;
  const std::string authorization_;  // empty = everybody may
  CoreDriver& driver_;
  SegmentCommands& segment_commands_;
  AdminRemovals removals_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<WaitingEvict> evicts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_ADMIN_SERVICE_H_
