#include "tools/ctl/context.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "client/client.h"
#include "tools/ctl/port_probe.h"
#include "tools/ctl/proto_json.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

constexpr absl::Duration kDefaultTimeout = absl::Seconds(5);
constexpr absl::Duration kProbePatience = absl::Milliseconds(1500);

// The schema allows these names only.
Wire WireOf(const std::string& name) {
  if (name == "tcp") return Wire::kTcp;
  if (name == "shm") return Wire::kShm;
  if (name == "rdma") return Wire::kRdma;
  return Wire::kAuto;
}

}  // namespace

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

absl::StatusOr<absl::Duration> Context::Timeout(const Connection& resolved) const {
  if (timeout.empty()) {
    return resolved.deadline_ms == 0
               ? kDefaultTimeout
               : absl::Milliseconds(static_cast<int64_t>(resolved.deadline_ms));
  }
  const absl::StatusOr<uint64_t> ms = ParseMillis(timeout);
  if (!ms.ok()) return Annotate(ms.status(), "--timeout");
  if (*ms == 0) return absl::InvalidArgumentError("--timeout must not be 0");
  return absl::Milliseconds(static_cast<int64_t>(*ms));
}

absl::StatusOr<std::unique_ptr<AdminClient>> Context::Admin(absl::Duration patience) const {
  CISTERN_ASSIGN_OR_RETURN(const Connection resolved, ResolveConnection(connection));
  CISTERN_ASSIGN_OR_RETURN(const absl::Duration deadline, Timeout(resolved));
  asked_grpc = resolved.master;
  return AdminClient::Make(resolved, patience > absl::ZeroDuration() ? patience : deadline);
}

absl::StatusOr<std::unique_ptr<Client>> Context::Data() const {
  CISTERN_ASSIGN_OR_RETURN(const Connection resolved, ResolveConnection(connection));
  ClientOptions options;
  options.master_address = resolved.data;
  options.pool_token_file = resolved.token_file;
  options.wire = WireOf(resolved.wire);
  options.rdma = resolved.rdma;
  if (resolved.connections_per_store != 0) {
    options.connections_per_store = static_cast<int>(resolved.connections_per_store);
  }
  CISTERN_ASSIGN_OR_RETURN(options.deadline, Timeout(resolved));
  asked_data = resolved.data;
  return Client::Connect(options);
}

void Context::Print(const google::protobuf::Message& message, const std::string& text,
                    const std::string& only) const {
  out << (json() ? ToJson(message, /*compact=*/false, only) + "\n" : text);
}

std::string Context::WrongPort(const absl::Status& status) const {
  // What is no frame at all is an invalid argument to the library: it has tried to reach somebody.
  const bool no_frame =
      absl::IsInvalidArgument(status) && absl::StrContains(status.message(), "cannot reach");
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status) &&
      !absl::IsUnimplemented(status) && !no_frame) {
    return "";
  }
  Clock& clock = Clock::Real();
  std::string advice;
  if (!asked_grpc.empty()) {
    advice = AdviceForGrpc(asked_grpc, ProbePort(asked_grpc, kProbePatience, clock));
  }
  if (advice.empty() && !asked_data.empty()) {
    advice = AdviceForData(asked_data, ProbePort(asked_data, kProbePatience, clock));
  }
  return advice;
}

void Context::Run(const std::function<absl::Status()>& command) {
  const absl::Status status = command();
  if (status.ok()) return;
  err << "cisternctl: " << std::string(status.message()) << "\n";
  exit_code = ExitCodeOf(status);
  const std::string advice = WrongPort(status);
  if (advice.empty()) return;
  err << "cisternctl: " << Printable(advice) << "\n";
  exit_code = kExitUnreachable;
}

}  // namespace cistern::ctl
