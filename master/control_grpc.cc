#include "master/control_grpc.h"

#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace cistern::master {
namespace {

// gRPC's own lines. What matters in them comes back as a status too.
void LogGrpc(gpr_log_func_args* args) {
  if (args->severity != GPR_LOG_SEVERITY_ERROR) return;
  CISTERN_LOG_EVERY(Debug, absl::Seconds(1), "grpc: ", args->message);
}

int Milliseconds(absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(d)); }

std::string Address(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

// gRPC does not say why it cannot listen: try the same by hand.
absl::Status WhyNotListening(const ControlServer::Options& options) {
  const std::string address = Address(options.listen_address, options.port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(options.listen_address.c_str(), absl::StrCat(options.port).c_str(),
                                &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen_address '", options.listen_address, "': ", gai_strerror(error)));
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int bound = fd < 0 ? -1 : bind(fd, found->ai_addr, found->ai_addrlen);
  const int reason = errno;
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  if (bound == 0 || reason == EADDRINUSE) {
    return absl::UnavailableError(absl::StrCat("port ", options.port,
                                               " is in use: cannot listen on ", address,
                                               " for stores and cisternctl (grpc_port)"));
  }
  return ErrnoStatus(reason, absl::StrCat("cannot listen on ", address, " (grpc_port)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const Options& options,
                                                                    grpc::Service* sessions,
                                                                    grpc::Service* admin) {
  gpr_set_log_function(LogGrpc);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(Address(options.listen_address, options.port),
                           grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(sessions);
  builder.RegisterService(admin);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  builder.SetMaxSendMessageSize(options.max_message_bytes);
  builder.SetResourceQuota(grpc::ResourceQuota("master").Resize(options.max_memory_bytes));
  // A second master must not share the port.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Milliseconds(options.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(options.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Stores and tools may ping as often as once a second.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) return WhyNotListening(options);
  return std::unique_ptr<ControlServer>(
      new ControlServer(std::move(server), static_cast<uint16_t>(port)));
}

ControlServer::ControlServer(std::unique_ptr<grpc::Server> server, uint16_t port)
    : server_(std::move(server)), port_(port) {}

ControlServer::~ControlServer() { Stop(absl::ZeroDuration()); }

void ControlServer::Stop(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(absl::ToChronoTime(Clock::Real().Wall() + grace));
  server_ = nullptr;
}

}  // namespace cistern::master
