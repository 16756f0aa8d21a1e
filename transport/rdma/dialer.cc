#include "transport/rdma/dialer.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/handshake.h"
#include "transport/rdma/format.h"
#include "transport/rdma/rdma_link.h"

namespace cistern::transport::rdma {
namespace {

// Short, and repeated: where the neighbour answers before the kernel has queued the question, it
// looks again only when this time is over.
constexpr int kResolveMs = 300;
constexpr int kRouteMs = 1000;
constexpr int kMostResolves = 4;
// Of connection manager events that take no more words.
constexpr uint32_t kCompletionsToken = 1;
constexpr uint32_t kManagerToken = 2;

absl::Status Failed(const char* call) {
  return absl::UnavailableError(ErrnoStatus(errno, call).message());
}

void MakeNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

absl::Status Watch(int epoll_fd, int fd, uint32_t token) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = token;
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "epoll_ctl");
}

// What the dialer makes and the link keeps: everything by which events come.
class ClientCm final : public CmSide {
 public:
  static absl::StatusOr<std::unique_ptr<ClientCm>> Create(std::shared_ptr<Host> host) {
    auto cm = std::make_unique<ClientCm>();
    cm->host_ = std::move(host);
    cm->epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
    if (cm->epoll_fd_ < 0) return ErrnoStatus(errno, "epoll_create1");
    CISTERN_ASSIGN_OR_RETURN(cm->channel_, CreateCmChannel());
    MakeNonBlocking(cm->channel_->fd);
    CISTERN_RETURN_IF_ERROR(Watch(cm->epoll_fd_, cm->channel_->fd, kManagerToken));
    return cm;
  }
  ~ClientCm() override {
    if (epoll_fd_ >= 0) close(epoll_fd_);
  }

  absl::Status NewId() {
    id_.reset();
    CISTERN_ASSIGN_OR_RETURN(id_, CreateCmId(channel_.get(), nullptr));
    return absl::OkStatus();
  }
  absl::Status MakeCompletions(ibv_context* context) {
    CISTERN_ASSIGN_OR_RETURN(completions_, CreateCompletionChannel(context));
    MakeNonBlocking(completions_->fd);
    return Watch(epoll_fd_, completions_->fd, kCompletionsToken);
  }

  absl::Status Check(Endpoint* endpoint) override;
  void Disconnect() override {
    const auto verbs = LoadVerbs();
    if (verbs.ok() && id_ != nullptr) (*verbs)->cm.disconnect(id_.get());
  }

  int epoll_fd() const { return epoll_fd_; }
  rdma_cm_id* id() const { return id_.get(); }
  rdma_event_channel* channel() const { return channel_.get(); }
  ibv_comp_channel* completions() const { return completions_.get(); }
  Host& host() const { return *host_; }
  const std::shared_ptr<Host>& shared_host() const { return host_; }

 private:
  std::shared_ptr<Host> host_;
  int epoll_fd_ = -1;
  CmChannel channel_;
  CmId id_;
  CompletionChannel completions_;
};

absl::Status ClientCm::Check(Endpoint* endpoint) {
  epoll_event events[2];
  const int n = epoll_wait(epoll_fd_, events, 2, 0);
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  absl::Status status;
  for (int i = 0; i < n; ++i) {
    if (events[i].data.u32 == kCompletionsToken) {
      ibv_cq* queue = nullptr;
      void* context = nullptr;
      while (verbs->get_cq_event(completions_.get(), &queue, &context) == 0) {
        verbs->ack_cq_events(queue, 1);
        endpoint->OnEvent();
      }
      continue;
    }
    for (auto event = NextCmEvent(channel_.get()); event.ok();
         event = NextCmEvent(channel_.get())) {
      if ((*event)->event == RDMA_CM_EVENT_ESTABLISHED) continue;
      status = absl::UnavailableError(
          absl::StrCat("the peer went away (", verbs->cm.event_str((*event)->event), ")"));
    }
  }
  return status;
}

class Dialer final : public LinkDialer {
 public:
  Dialer(std::unique_ptr<ClientCm> cm, const SocketAddress& address)
      : cm_(std::move(cm)), fd_(cm_->epoll_fd()), address_(address) {}
  ~Dialer() override { endpoint_.reset(); }

  absl::Status Resolve();
  int fd() const override { return fd_; }
  absl::StatusOr<bool> Advance() override;
  std::unique_ptr<StreamLink> TakeLink() override {
    return std::make_unique<ClientLink>(std::move(endpoint_), std::move(cm_));
  }

 private:
  absl::Status OnRoute();
  absl::Status OnResponse(const rdma_cm_event& event);
  absl::Status Refused(const rdma_cm_event& event);

  std::unique_ptr<ClientCm> cm_;
  const int fd_;
  SocketAddress address_;
  int resolves_ = 0;
  HostDevice* device_ = nullptr;
  Greeting greeting_;
  std::unique_ptr<Endpoint> endpoint_;
};

absl::Status Dialer::Resolve() {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  ++resolves_;
  CISTERN_RETURN_IF_ERROR(cm_->NewId());
  uint8_t tos = static_cast<uint8_t>(cm_->host().options().traffic_class);
  if (tos != 0 &&
      verbs->cm.set_option(cm_->id(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)) != 0) {
    return Failed("rdma_set_option");
  }
  if (verbs->cm.resolve_addr(cm_->id(), nullptr, reinterpret_cast<sockaddr*>(&address_.storage),
                             kResolveMs) != 0) {
    return Failed("rdma_resolve_addr");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Dialer::Advance() {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  for (;;) {
    auto event = NextCmEvent(cm_->channel());
    if (!event.ok()) return false;  // none now
    switch ((*event)->event) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        device_ = cm_->host().Find((*event)->id->verbs);
        if (device_ == nullptr) {
          return absl::UnavailableError("the RDMA device that leads there is not in use");
        }
        if (verbs->cm.resolve_route(cm_->id(), kRouteMs) != 0) return Failed("rdma_resolve_route");
        continue;
      case RDMA_CM_EVENT_ADDR_ERROR:
        event->reset();
        if (resolves_ >= kMostResolves) return absl::UnavailableError("no RDMA port has an answer");
        CISTERN_RETURN_IF_ERROR(Resolve());
        continue;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        CISTERN_RETURN_IF_ERROR(OnRoute());
        continue;
      case RDMA_CM_EVENT_CONNECT_RESPONSE:
        CISTERN_RETURN_IF_ERROR(OnResponse(**event));
        return true;
      case RDMA_CM_EVENT_REJECTED:
        return Refused(**event);
      default:
        return absl::UnavailableError(absl::StrCat(
            "rdma_cm: ", verbs->cm.event_str((*event)->event), " (", (*event)->status, ")"));
    }
  }
}

absl::Status Dialer::OnRoute() {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  CISTERN_RETURN_IF_ERROR(cm_->MakeCompletions(device_->context));
  EndpointOptions options;
  options.host = cm_->shared_host();
  options.device = device_;
  options.channel = cm_->completions();
  CISTERN_ASSIGN_OR_RETURN(options.sends, MessageBuffers::Create(device_->domain.get(), kReceives));
  options.remote_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  CISTERN_ASSIGN_OR_RETURN(endpoint_, Endpoint::Create(options));
  CISTERN_RETURN_IF_ERROR(endpoint_->Advance(cm_->id(), IBV_QPS_INIT));
  const std::string nonce = RandomNonce();
  std::memcpy(greeting_.nonce, nonce.data(), sizeof(greeting_.nonce));
  greeting_.reads = static_cast<uint16_t>(device_->max_reads);
  greeting_.mtu = static_cast<uint16_t>(cm_->host().options().mtu_bytes);
  uint8_t data[kGreetingBytes];
  EncodeGreeting(greeting_, data);
  rdma_conn_param parameters = {};
  parameters.private_data = data;
  parameters.private_data_len = kGreetingBytes;
  parameters.responder_resources = static_cast<uint8_t>(device_->max_reads);
  parameters.initiator_depth = static_cast<uint8_t>(device_->max_reads);
  parameters.retry_count = static_cast<uint8_t>(cm_->host().options().retry_count);
  parameters.rnr_retry_count = 7;
  parameters.qp_num = endpoint_->number();
  if (verbs->cm.connect(cm_->id(), &parameters) != 0) return Failed("rdma_connect");
  return absl::OkStatus();
}

absl::Status Dialer::OnResponse(const rdma_cm_event& event) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  CISTERN_ASSIGN_OR_RETURN(
      const Greeting answer,
      DecodeGreeting(event.param.conn.private_data, event.param.conn.private_data_len));
  // The answer to another connection than this must not configure it.
  if (std::memcmp(answer.nonce, greeting_.nonce, sizeof(answer.nonce)) != 0) {
    return absl::UnavailableError("rdma: the answer is to another call");
  }
  endpoint_->LimitMtu(answer.mtu);
  CISTERN_RETURN_IF_ERROR(endpoint_->Advance(cm_->id(), IBV_QPS_RTR));
  CISTERN_RETURN_IF_ERROR(endpoint_->Advance(cm_->id(), IBV_QPS_RTS));
  if (verbs->cm.establish(cm_->id()) != 0) return Failed("rdma_establish");
  return absl::OkStatus();
}

absl::Status Dialer::Refused(const rdma_cm_event& event) {
  constexpr int kByTheConsumer = 28;
  if (event.status == kByTheConsumer && event.param.conn.private_data != nullptr) {
    const char* text = static_cast<const char*>(event.param.conn.private_data);
    const std::string why(text, strnlen(text, event.param.conn.private_data_len));
    return absl::UnavailableError(absl::StrCat("refused: ", why));
  }
  return absl::UnavailableError(
      absl::StrCat("refused by rdma_cm (", event.status, "): nobody listens there"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDialer>> Dial(std::shared_ptr<Host> host,
                                                 const SocketAddress& address) {
  CISTERN_ASSIGN_OR_RETURN(auto cm, ClientCm::Create(std::move(host)));
  auto dialer = std::make_unique<Dialer>(std::move(cm), address);
  CISTERN_RETURN_IF_ERROR(dialer->Resolve());
  return dialer;
}

}  // namespace cistern::transport::rdma
