#include "tools/ctl/context.h"

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/status.h"
#include "client/client.h"
#include "tools/ctl/proto_json.h"

namespace cistern::ctl {

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnreachable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitDenied;
    default:
      return kExitFailed;
  }
}

absl::StatusOr<absl::Duration> Context::Timeout() const {
  const absl::StatusOr<uint64_t> ms = ParseMillis(timeout);
  if (!ms.ok()) return Annotate(ms.status(), "--timeout");
  if (*ms == 0) return absl::InvalidArgumentError("--timeout must not be 0");
  return absl::Milliseconds(static_cast<int64_t>(*ms));
}

absl::StatusOr<std::unique_ptr<AdminClient>> Context::Admin() const {
  CISTERN_ASSIGN_OR_RETURN(const Connection resolved, ResolveConnection(connection));
  CISTERN_ASSIGN_OR_RETURN(const absl::Duration deadline, Timeout());
  return AdminClient::Make(resolved, deadline);
}

absl::StatusOr<std::unique_ptr<Client>> Context::Data() const {
  CISTERN_ASSIGN_OR_RETURN(const Connection resolved, ResolveConnection(connection));
  ClientOptions options;
  options.master_address = resolved.data;
  options.pool_token_file = resolved.token_file;
  CISTERN_ASSIGN_OR_RETURN(options.deadline, Timeout());
  return Client::Connect(options);
}

void Context::Print(const google::protobuf::Message& message, const std::string& text) const {
  out << (json() ? ToJson(message) + "\n" : text);
}

void Context::Run(const std::function<absl::Status()>& command) {
  const absl::Status status = command();
  if (status.ok()) return;
  err << "cisternctl: " << std::string(status.message()) << "\n";
  exit_code = ExitCodeOf(status);
}

}  // namespace cistern::ctl
