// The master's admin service, with its authorisation.
#ifndef CISTERN_TOOLS_CTL_ADMIN_CLIENT_H_
#define CISTERN_TOOLS_CTL_ADMIN_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/admin.pb.h"
#include "tools/ctl/connection.h"

namespace cistern::ctl {

// Blocking calls, each with a deadline. Statuses name the master's address when it cannot be
// reached (Unavailable, DeadlineExceeded) or does not accept the token (PermissionDenied).
// Thread-compatible: one call at a time.
class AdminClient {
 public:
  // Makes no call yet. Fails when the token file cannot be used.
  static absl::StatusOr<std::unique_ptr<AdminClient>> Make(const Connection& connection,
                                                           absl::Duration timeout);
  ~AdminClient();

  absl::StatusOr<admin::StatsReply> Stats();
  absl::StatusOr<admin::SegmentsReply> Segments();
  absl::StatusOr<admin::MountSegmentReply> MountSegment(const admin::MountSegmentRequest& request);
  absl::StatusOr<admin::UnmountSegmentReply> UnmountSegment(
      const admin::UnmountSegmentRequest& request);
  absl::StatusOr<admin::ListChunksReply> ListChunks(const admin::ListChunksRequest& request);
  absl::StatusOr<admin::StatChunkReply> StatChunk(const admin::StatChunkRequest& request);
  absl::StatusOr<admin::RemoveChunksReply> RemoveChunks(const admin::RemoveChunksRequest& request);
  absl::StatusOr<admin::EvictReply> Evict(const admin::EvictRequest& request);
  absl::StatusOr<admin::RemoveNamespaceReply> RemoveNamespace(
      const admin::RemoveNamespaceRequest& request);
  absl::StatusOr<admin::VersionReply> Version();

  // Ends the call in progress and every later one: Cancelled. From any thread.
  void Cancel();

 private:
  class Impl;  // gRPC's headers are heavy: only the .cc has them

  explicit AdminClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// "Bearer <hex of HMAC-SHA-256(token, "admin" || pool id)>".
std::string AdminAuthorization(const std::string& token, const std::string& pool_id);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_ADMIN_CLIENT_H_
