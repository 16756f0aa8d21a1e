#include "tools/ctl/admin_client.h"

#include <grpcpp/create_channel.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/key_hash.h"
#include "base/secret_file.h"
#include "base/status.h"

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

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Make(const Connection& connection,
                                                               absl::Duration timeout) {
  std::string token;
  if (!connection.token_file.empty()) {
    CISTERN_ASSIGN_OR_RETURN(token, ReadSecretFile(connection.token_file, kMinTokenBytes));
  }
  return std::unique_ptr<AdminClient>(new AdminClient(connection, timeout, std::move(token)));
}

AdminClient::AdminClient(const Connection& connection, absl::Duration timeout, std::string token)
    : address_(connection.master),
      timeout_(timeout),
      token_(std::move(token)),
      pool_id_(connection.pool_id) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
  stub_ = admin::Admin::NewStub(
      grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
}

template <typename Request, typename Reply>
absl::StatusOr<Reply> AdminClient::Call(Method<Request, Reply> method, const Request& request,
                                        bool authorised) {
  if (authorised) CISTERN_RETURN_IF_ERROR(PrepareAuthorization());
  grpc::ClientContext context;
  context.set_deadline(
      std::chrono::system_clock::time_point(absl::ToChronoTime(Clock::Real().Wall() + timeout_)));
  if (authorised && !authorization_.empty()) context.AddMetadata("authorization", authorization_);
  Reply reply;
  const grpc::Status status = (stub_.get()->*method)(&context, request, &reply);
  if (!status.ok()) return FromGrpc(status, address_);
  return reply;
}

absl::Status AdminClient::PrepareAuthorization() {
  if (token_.empty() || !authorization_.empty()) return absl::OkStatus();
  if (pool_id_.empty()) {
    CISTERN_ASSIGN_OR_RETURN(const admin::VersionReply version, Version());
    CISTERN_ASSIGN_OR_RETURN(const PoolId pool, PoolId::ParseHex(version.pool_id()));
    pool_id_ = std::string(pool.view());
  }
  authorization_ = AdminAuthorization(token_, pool_id_);
  return absl::OkStatus();
}

absl::StatusOr<admin::StatsReply> AdminClient::Stats() {
  return Call(&admin::Admin::Stub::Stats, admin::StatsRequest());
}
absl::StatusOr<admin::SegmentsReply> AdminClient::Segments() {
  return Call(&admin::Admin::Stub::Segments, admin::SegmentsRequest());
}
absl::StatusOr<admin::ListChunksReply> AdminClient::ListChunks(
    const admin::ListChunksRequest& request) {
  return Call(&admin::Admin::Stub::ListChunks, request);
}
absl::StatusOr<admin::StatChunkReply> AdminClient::StatChunk(
    const admin::StatChunkRequest& request) {
  return Call(&admin::Admin::Stub::StatChunk, request);
}
absl::StatusOr<admin::RemoveChunksReply> AdminClient::RemoveChunks(
    const admin::RemoveChunksRequest& request) {
  return Call(&admin::Admin::Stub::RemoveChunks, request);
}
absl::StatusOr<admin::EvictReply> AdminClient::Evict(const admin::EvictRequest& request) {
  return Call(&admin::Admin::Stub::Evict, request);
}
absl::StatusOr<admin::RemoveNamespaceReply> AdminClient::RemoveNamespace(
    const admin::RemoveNamespaceRequest& request) {
  return Call(&admin::Admin::Stub::RemoveNamespace, request);
}
absl::StatusOr<admin::VersionReply> AdminClient::Version() {
  return Call(&admin::Admin::Stub::Version, admin::VersionRequest(), /*authorised=*/false);
}

}  // namespace cistern::ctl
