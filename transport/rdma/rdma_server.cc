#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "transport/rdma/accepted_link.h"
#include "transport/rdma/format.h"
#include "transport/rdma/loop_part.h"
#include "transport/rdma/rdma.h"
#include "transport/stream/stream_server.h"

namespace cistern::transport {
namespace {

using rdma::CmEvent;
using rdma::CmId;
using rdma::Verbs;

constexpr int kBacklog = 1024;
// Several times what a small request takes on a network with RDMA.
constexpr absl::Duration kAdaptiveSpin = absl::Microseconds(50);

absl::Status Failed(const char* call) {
  return absl::UnavailableError(ErrnoStatus(errno, call).message());
}

class RdmaServerWire final : public ServerWire {
 public:
  static absl::StatusOr<std::shared_ptr<RdmaServerWire>> Listen(const RdmaServerOptions& options);

  std::string name() const override { return "rdma"; }
  absl::Status OnAccepted(int, const SocketAddress&, std::string*) override {
    return absl::OkStatus();
  }
  std::unique_ptr<StreamLink> MakeLink(int) override { return nullptr; }
  bool has_sockets() const override { return false; }
  absl::StatusOr<std::unique_ptr<LoopPart>> MakeLoopPart() override {
    return rdma::RdmaLoopPart::Create(host_);
  }
  absl::StatusOr<AcceptedLink> Accept(LoopPart* part, bool full) override;
  void StopListening() override {
    MutexLock lock(mutex_);
    listeners_.clear();
  }

  int fd() const { return channel_->fd; }
  uint16_t port() const { return port_; }
  const std::string& address() const { return address_; }

 private:
  // What came with a request to connect.
  struct Request {
    CmId id;
    rdma::Greeting greeting;
    uint8_t reads = 0;  // that the peer serves
  };
  absl::Status ListenOn(const SocketAddress& address);
  absl::StatusOr<AcceptedLink> AcceptRequest(const rdma::RdmaLoopPart& part, Request request);
  absl::Status Refuse(rdma_cm_id* id, const absl::Status& why);

  std::shared_ptr<rdma::Host> host_;
  const Verbs* verbs_ = nullptr;
  rdma::CmChannel channel_;
  uint16_t port_ = 0;
  std::string address_;
  Mutex mutex_;
  std::vector<CmId> listeners_ ABSL_GUARDED_BY(mutex_);
  // The accepting loop's: by what an id carries as its context.
  uint64_t next_serial_ = 1;
  std::unordered_map<uint64_t, std::weak_ptr<rdma::Peer>> peers_;
};

absl::StatusOr<std::shared_ptr<RdmaServerWire>> RdmaServerWire::Listen(
    const RdmaServerOptions& options) {
  auto wire = std::make_shared<RdmaServerWire>();
  wire->host_ = options.host;
  CISTERN_ASSIGN_OR_RETURN(wire->verbs_, rdma::LoadVerbs());
  CISTERN_ASSIGN_OR_RETURN(wire->channel_, rdma::CreateCmChannel());
  fcntl(wire->channel_->fd, F_SETFL, fcntl(wire->channel_->fd, F_GETFL) | O_NONBLOCK);
  wire->port_ = options.port;
  std::vector<std::string> addresses = options.listen_addresses;
  if (addresses.empty()) addresses = options.host->Addresses();
  if (addresses.empty()) return absl::UnavailableError("no RDMA port has an address to listen on");
  for (const std::string& address : addresses) {
    CISTERN_ASSIGN_OR_RETURN(const auto resolved,
                             ResolveHost(address, wire->port_, /*literal_only=*/true));
    CISTERN_RETURN_IF_ERROR(Annotate(wire->ListenOn(resolved.front()), address));
    if (wire->address_.empty()) {
      auto at = ResolveHost(address, wire->port_, /*literal_only=*/true);
      if (at.ok()) wire->address_ = "rdma:" + at->front().ToString();
    }
  }
  return wire;
}

absl::Status RdmaServerWire::ListenOn(const SocketAddress& address) {
  CISTERN_ASSIGN_OR_RETURN(CmId id, rdma::CreateCmId(channel_.get(), nullptr));
  SocketAddress at = address;
  if (verbs_->cm.bind_addr(id.get(), reinterpret_cast<sockaddr*>(&at.storage)) != 0) {
    if (errno == EADDRINUSE) {
      return absl::UnavailableError(absl::StrCat("port ", at.port(), " is in use"));
    }
    return Failed("rdma_bind_addr");
  }
  if (verbs_->cm.listen(id.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return absl::UnavailableError(absl::StrCat("port ", at.port(), " is in use"));
    }
    return Failed("rdma_listen");
  }
  // All of them the one that the first got.
  port_ = ntohs(verbs_->cm.get_src_port(id.get()));
  MutexLock lock(mutex_);
  listeners_.push_back(std::move(id));
  return absl::OkStatus();
}

absl::Status RdmaServerWire::Refuse(rdma_cm_id* id, const absl::Status& why) {
  const std::string text(why.message().substr(0, 140));
  verbs_->cm.reject(id, text.c_str(), static_cast<uint8_t>(text.size() + 1));
  return why.code() == absl::StatusCode::kNotFound ? absl::UnavailableError(text) : why;
}

absl::StatusOr<AcceptedLink> RdmaServerWire::Accept(LoopPart* part, bool full) {
  for (;;) {
    auto event = rdma::NextCmEvent(channel_.get());
    if (!event.ok()) return absl::NotFoundError("nobody waits");
    if ((*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      Request request;
      request.id = rdma::AdoptCmId((*event)->id);
      const rdma_conn_param& parameters = (*event)->param.conn;
      const auto greeting =
          rdma::DecodeGreeting(parameters.private_data, parameters.private_data_len);
      request.reads = parameters.responder_resources;
      // Acknowledged first: the end of its id waits for that.
      event->reset();
      if (!greeting.ok()) return Refuse(request.id.get(), greeting.status());
      if (full) {
        return Refuse(request.id.get(), absl::ResourceExhaustedError("too many connections"));
      }
      request.greeting = *greeting;
      return AcceptRequest(static_cast<rdma::RdmaLoopPart&>(*part), std::move(request));
    }
    const rdma_cm_event_type type = (*event)->event;
    const uint64_t serial = reinterpret_cast<uintptr_t>((*event)->id->context);
    event->reset();
    if (type == RDMA_CM_EVENT_ESTABLISHED) continue;
    const auto it = peers_.find(serial);
    if (it == peers_.end()) continue;
    if (const auto peer = it->second.lock()) peer->Gone();
    peers_.erase(it);
  }
}

absl::StatusOr<AcceptedLink> RdmaServerWire::AcceptRequest(const rdma::RdmaLoopPart& part,
                                                           Request request) {
  rdma_cm_id* const id = request.id.get();
  const rdma::RdmaLoopPart::DevicePart* const at = part.Find(id->verbs);
  if (at == nullptr) {
    return Refuse(id, absl::UnavailableError("that RDMA device is not in use here"));
  }
  rdma::EndpointOptions options;
  options.host = host_;
  options.device = at->device;
  options.channel = at->channel.get();
  options.receives = at->receives;
  options.sends = at->sends;
  // Nobody reaches into a store's memory.
  options.remote_access = 0;
  auto endpoint = rdma::Endpoint::Create(options);
  if (!endpoint.ok()) return Refuse(id, endpoint.status());
  rdma::Greeting answer = request.greeting;
  const auto own_mtu = static_cast<uint16_t>(host_->options().mtu_bytes);
  if (own_mtu != 0) answer.mtu = answer.mtu == 0 ? own_mtu : std::min(answer.mtu, own_mtu);
  (*endpoint)->LimitMtu(answer.mtu);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    absl::Status status = (*endpoint)->Advance(id, state);
    if (!status.ok()) return Refuse(id, status);
  }
  answer.reads = static_cast<uint16_t>(at->device->max_reads);
  uint8_t data[rdma::kGreetingBytes];
  rdma::EncodeGreeting(answer, data);
  rdma_conn_param parameters = {};
  parameters.private_data = data;
  parameters.private_data_len = rdma::kGreetingBytes;
  parameters.initiator_depth =
      static_cast<uint8_t>(std::min<uint32_t>(request.reads, at->device->max_reads));
  parameters.responder_resources = 0;
  parameters.rnr_retry_count = 7;
  parameters.qp_num = (*endpoint)->number();
  auto peer = std::make_shared<rdma::Peer>();
  const uint64_t serial = next_serial_++;
  id->context = reinterpret_cast<void*>(static_cast<uintptr_t>(serial));
  if (verbs_->cm.accept(id, &parameters) != 0) return Failed("rdma_accept");
  if (peers_.size() > 1024 && serial % 1024 == 0) {
    std::erase_if(peers_, [](const auto& entry) { return entry.second.expired(); });
  }
  peers_.emplace(serial, peer);
  AcceptedLink accepted;
  SocketAddress from;
  const sockaddr* const address = &id->route.addr.dst_addr;
  from.bytes = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&from.storage, address, from.bytes);
  accepted.address = "rdma:" + from.ToString();
  accepted.link =
      std::make_unique<rdma::AcceptedRdmaLink>(*std::move(endpoint), std::move(request.id), peer);
  return accepted;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WireServer>> ListenRdma(const RdmaServerOptions& options,
                                                       RequestHandler* handler) {
  if (options.identity.token.empty()) {
    return absl::FailedPreconditionError(
        "refusing to listen on an RDMA port without a pool token: set pool_token_file");
  }
  CISTERN_ASSIGN_OR_RETURN(const auto wire, RdmaServerWire::Listen(options));
  StreamServerOptions stream;
  stream.wire = wire;
  stream.io_threads = options.io_threads;
  switch (options.polling) {
    case Polling::kEvent:
      break;
    case Polling::kAdaptive:
      stream.spin = kAdaptiveSpin;
      break;
    case Polling::kBusy:
      stream.spin = absl::InfiniteDuration();
      break;
  }
  stream.limits = options.limits;
  stream.identity = options.identity;
  stream.clock = options.clock;
  stream.address = wire->address();
  stream.port = wire->port();
  return StartStreamServer(std::move(stream), wire->fd(), handler);
}

}  // namespace cistern::transport
