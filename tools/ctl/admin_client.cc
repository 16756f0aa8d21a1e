#include "tools/ctl/admin_client.h"

#include <grpcpp/create_channel.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/key_hash.h"
#include "base/mutex.h"
#include "base/secret_file.h"
#include "base/status.h"
#include "proto/admin.grpc.pb.h"

namespace cistern::ctl {
namespace {

constexpr size_t kMinTokenBytes = 32;
constexpr int kMaxReplyBytes = 64 << 20;

absl::Status FromGrpc(const grpc::Status& status, const std::string& address) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  std::string message = status.error_message();
  if (code == absl::StatusCode::kUnavailable) {
    message = absl::StrCat("no master answers at ", address, ": ", message);
  } else if (code == absl::StatusCode::kDeadlineExceeded) {
    message = absl::StrCat("the master at ", address, " did not answer in time");
  } else if (code == absl::StatusCode::kUnauthenticated ||
             code == absl::StatusCode::kPermissionDenied) {
    return absl::PermissionDeniedError(
        absl::StrCat("the master at ", address, " refuses the pool token: ", message));
  }
  return absl::Status(code, message);
}

}  // namespace

std::string AdminAuthorization(const std::string& token, const std::string& pool_id) {
  const auto mac = HmacSha256(token, "admin" + pool_id);
  return "Bearer " + absl::BytesToHexString(
                         absl::string_view(reinterpret_cast<const char*>(mac.data()), mac.size()));
}

class AdminClient::Impl {
 public:
  Impl(const Connection& connection, absl::Duration timeout, std::string token)
      : address_(connection.master),
        timeout_(timeout),
        token_(std::move(token)),
        pool_id_(connection.pool_id) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
    // Who asks again and again finds a master that was started again within a second.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // A proxy for the web (http_proxy) leads to no master.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = admin::Admin::NewStub(
        grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
  }

  template <typename Request, typename Reply>
  using Method = grpc::Status (admin::Admin::Stub::*)(grpc::ClientContext*, const Request&, Reply*);

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(Method<Request, Reply> method, const Request& request) {
    CISTERN_RETURN_IF_ERROR(PrepareAuthorization());
    return CallBare(method, request);
  }

  // Without authorisation, unless it is known already.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> CallBare(Method<Request, Reply> method, const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(Clock::Real().Wall() + timeout_));
    if (!authorization_.empty()) context.AddMetadata("authorization", authorization_);
    Reply reply;
    {
      MutexLock lock(mutex_);
      if (cancelled_) return absl::CancelledError("cancelled");
      running_ = &context;
    }
    const grpc::Status status = (stub_.get()->*method)(&context, request, &reply);
    {
      MutexLock lock(mutex_);
      running_ = nullptr;
    }
    if (!status.ok()) return FromGrpc(status, address_);
    return reply;
  }

  void Cancel() {
    MutexLock lock(mutex_);
    cancelled_ = true;
    if (running_ != nullptr) running_->TryCancel();
  }

 private:
  // Learns the pool id when it is not known; it is part of the authorisation.
  absl::Status PrepareAuthorization() {
    if (token_.empty() || !authorization_.empty()) return absl::OkStatus();
    if (pool_id_.empty()) {
      CISTERN_ASSIGN_OR_RETURN(const admin::VersionReply version,
                               CallBare(&admin::Admin::Stub::Version, admin::VersionRequest()));
      CISTERN_ASSIGN_OR_RETURN(const PoolId pool, PoolId::ParseHex(version.pool_id()));
      pool_id_ = std::string(pool.view());
    }
    authorization_ = AdminAuthorization(token_, pool_id_);
    return absl::OkStatus();
  }

  const std::string address_;
  const absl::Duration timeout_;
  const std::string token_;  // empty = none
  std::string pool_id_;      // 16 bytes; empty = not known yet
  std::string authorization_;
  std::unique_ptr<admin::Admin::Stub> stub_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* running_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Make(const Connection& connection,
                                                               absl::Duration timeout) {
  std::string token;
  if (!connection.token_file.empty()) {
    CISTERN_ASSIGN_OR_RETURN(token, ReadSecretFile(connection.token_file, kMinTokenBytes));
  }
  return std::unique_ptr<AdminClient>(
      new AdminClient(std::make_unique<Impl>(connection, timeout, std::move(token))));
}

AdminClient::AdminClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminClient::~AdminClient() = default;

absl::StatusOr<admin::StatsReply> AdminClient::Stats() {
  return impl_->Call(&admin::Admin::Stub::Stats, admin::StatsRequest());
}
absl::StatusOr<admin::SegmentsReply> AdminClient::Segments() {
  return impl_->Call(&admin::Admin::Stub::Segments, admin::SegmentsRequest());
}
absl::StatusOr<admin::MountSegmentReply> AdminClient::MountSegment(
    const admin::MountSegmentRequest& request) {
  return impl_->Call(&admin::Admin::Stub::MountSegment, request);
}
absl::StatusOr<admin::UnmountSegmentReply> AdminClient::UnmountSegment(
    const admin::UnmountSegmentRequest& request) {
  return impl_->Call(&admin::Admin::Stub::UnmountSegment, request);
}
absl::StatusOr<admin::ListChunksReply> AdminClient::ListChunks(
    const admin::ListChunksRequest& request) {
  return impl_->Call(&admin::Admin::Stub::ListChunks, request);
}
absl::StatusOr<admin::StatChunkReply> AdminClient::StatChunk(
    const admin::StatChunkRequest& request) {
  return impl_->Call(&admin::Admin::Stub::StatChunk, request);
}
absl::StatusOr<admin::RemoveChunksReply> AdminClient::RemoveChunks(
    const admin::RemoveChunksRequest& request) {
  return impl_->Call(&admin::Admin::Stub::RemoveChunks, request);
}
absl::StatusOr<admin::EvictReply> AdminClient::Evict(const admin::EvictRequest& request) {
  return impl_->Call(&admin::Admin::Stub::Evict, request);
}
absl::StatusOr<admin::RemoveNamespaceReply> AdminClient::RemoveNamespace(
    const admin::RemoveNamespaceRequest& request) {
  return impl_->Call(&admin::Admin::Stub::RemoveNamespace, request);
}
absl::StatusOr<admin::VersionReply> AdminClient::Version() {
  return impl_->CallBare(&admin::Admin::Stub::Version, admin::VersionRequest());
}

void AdminClient::Cancel() { impl_->Cancel(); }

}  // namespace cistern::ctl
