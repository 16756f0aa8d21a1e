#include "transport/rdma/loopback_testing.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"

namespace cistern::transport::rdma {
namespace {

constexpr int kPatienceMs = 10'000;
// Short: where the neighbour answers before the kernel has queued the question (a veth pair does),
// it looks again only when this time is over.
constexpr int kResolveMs = 300;

struct Address {
  sockaddr_storage bytes = {};
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

absl::StatusOr<Address> Parse(const std::string& text, uint16_t port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(text.c_str(), nullptr, &hints, &found);
  if (error != 0) return absl::InvalidArgumentError(absl::StrCat(text, ": ", gai_strerror(error)));
  Address address;
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  if (address.bytes.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address.bytes)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&address.bytes)->sin_port = htons(port);
  }
  return address;
}

absl::Status CmStatus(int result, const char* call) {
  return result == 0 ? absl::OkStatus() : ErrnoStatus(errno, call);
}

rdma_conn_param Parameters() {
  rdma_conn_param parameters = {};
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 6;
  return parameters;
}

// Takes a connection's queue pair, which is no part of its id, through one state.
absl::Status Advance(rdma_cm_id* id, ibv_qp* queue_pair, ibv_qp_state state) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  ibv_qp_attr attributes = {};
  attributes.qp_state = state;
  int mask = 0;
  CISTERN_RETURN_IF_ERROR(
      CmStatus(verbs->cm.init_qp_attr(id, &attributes, &mask), "rdma_init_qp_attr"));
  if (state == IBV_QPS_INIT) attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int error = verbs->modify_qp(queue_pair, &attributes, mask);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "ibv_modify_qp");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Loopback>> Loopback::Connect(const std::string& client_address,
                                                            const std::string& server_address) {
  std::unique_ptr<Loopback> pair(new Loopback);
  CISTERN_RETURN_IF_ERROR(pair->Listen(server_address));
  CISTERN_RETURN_IF_ERROR(pair->Dial(client_address, server_address));
  CISTERN_RETURN_IF_ERROR(pair->AcceptOne());
  CISTERN_RETURN_IF_ERROR(pair->FinishDialing());
  return pair;
}

absl::Status Loopback::Listen(const std::string& address) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  CISTERN_ASSIGN_OR_RETURN(server_channel_, CreateCmChannel());
  CISTERN_ASSIGN_OR_RETURN(listener_, CreateCmId(server_channel_.get(), nullptr));
  CISTERN_ASSIGN_OR_RETURN(Address at, Parse(address, 0));
  CISTERN_RETURN_IF_ERROR(
      CmStatus(verbs->cm.bind_addr(listener_.get(), at.get()), "rdma_bind_addr"));
  return CmStatus(verbs->cm.listen(listener_.get(), 8), "rdma_listen");
}

absl::Status Loopback::Dial(const std::string& from, const std::string& to) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  CISTERN_ASSIGN_OR_RETURN(client_channel_, CreateCmChannel());
  CISTERN_ASSIGN_OR_RETURN(client_.id, CreateCmId(client_channel_.get(), nullptr));
  const uint16_t port = ntohs(verbs->cm.get_src_port(listener_.get()));
  CISTERN_ASSIGN_OR_RETURN(Address source, Parse(from, 0));
  CISTERN_ASSIGN_OR_RETURN(Address target, Parse(to, port));
  rdma_cm_id* id = client_.id.get();
  CISTERN_RETURN_IF_ERROR(CmStatus(
      verbs->cm.resolve_addr(id, source.get(), target.get(), kResolveMs), "rdma_resolve_addr"));
  CISTERN_RETURN_IF_ERROR(Expect(client_channel_.get(), RDMA_CM_EVENT_ADDR_RESOLVED).status());
  CISTERN_RETURN_IF_ERROR(CmStatus(verbs->cm.resolve_route(id, kPatienceMs), "resolve_route"));
  CISTERN_RETURN_IF_ERROR(Expect(client_channel_.get(), RDMA_CM_EVENT_ROUTE_RESOLVED).status());
  CISTERN_RETURN_IF_ERROR(MakeReady(id, &client_, &client_domain_));
  rdma_conn_param parameters = Parameters();
  parameters.qp_num = client_.queue_pair->qp_num;
  return CmStatus(verbs->cm.connect(id, &parameters), "rdma_connect");
}

absl::Status Loopback::AcceptOne() {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  CISTERN_ASSIGN_OR_RETURN(CmEvent request,
                           Expect(server_channel_.get(), RDMA_CM_EVENT_CONNECT_REQUEST));
  server_.id = AdoptCmId(request->id);
  request.reset();
  rdma_cm_id* id = server_.id.get();
  CISTERN_RETURN_IF_ERROR(MakeReady(id, &server_, &server_domain_));
  CISTERN_RETURN_IF_ERROR(Advance(id, server_.queue_pair.get(), IBV_QPS_RTR));
  CISTERN_RETURN_IF_ERROR(Advance(id, server_.queue_pair.get(), IBV_QPS_RTS));
  rdma_conn_param parameters = Parameters();
  parameters.qp_num = server_.queue_pair->qp_num;
  return CmStatus(verbs->cm.accept(id, &parameters), "rdma_accept");
}

absl::Status Loopback::FinishDialing() {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  rdma_cm_id* id = client_.id.get();
  // Of an id without a queue pair of its own: the last step is ours.
  CISTERN_RETURN_IF_ERROR(Expect(client_channel_.get(), RDMA_CM_EVENT_CONNECT_RESPONSE).status());
  CISTERN_RETURN_IF_ERROR(Advance(id, client_.queue_pair.get(), IBV_QPS_RTR));
  CISTERN_RETURN_IF_ERROR(Advance(id, client_.queue_pair.get(), IBV_QPS_RTS));
  CISTERN_RETURN_IF_ERROR(CmStatus(verbs->cm.establish(id), "rdma_establish"));
  return Expect(server_channel_.get(), RDMA_CM_EVENT_ESTABLISHED).status();
}

absl::StatusOr<CmEvent> Loopback::Expect(rdma_event_channel* channel, rdma_cm_event_type type) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  pollfd ready = {channel->fd, POLLIN, 0};
  const std::string wanted = verbs->cm.event_str(type);
  if (poll(&ready, 1, kPatienceMs) != 1) {
    return absl::DeadlineExceededError("no event; wanted " + wanted);
  }
  CISTERN_ASSIGN_OR_RETURN(CmEvent event, NextCmEvent(channel));
  if (event->event == type) return event;
  return absl::InternalError(absl::StrCat(verbs->cm.event_str(event->event), " with status ",
                                          event->status, "; wanted ", wanted));
}

absl::Status Loopback::MakeReady(rdma_cm_id* id, LoopbackEnd* end, ProtectionDomain* domain) {
  CISTERN_ASSIGN_OR_RETURN(*domain, AllocateProtectionDomain(id->verbs));
  CISTERN_ASSIGN_OR_RETURN(end->completions, CreateCompletionQueue(id->verbs, 16, nullptr));
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = attributes.recv_cq = end->completions.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {16, 16, 1, 1, 0};
  CISTERN_ASSIGN_OR_RETURN(end->queue_pair, CreateQueuePair(domain->get(), &attributes));
  return Advance(id, end->queue_pair.get(), IBV_QPS_INIT);
}

absl::StatusOr<ibv_wc_status> PostAndWait(LoopbackEnd& end, ibv_send_wr request) {
  request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(end.queue_pair.get(), &request, &bad);
  if (error != 0) return ErrnoStatus(error, "ibv_post_send");
  Clock& clock = Clock::Real();
  const MonoTime until = clock.Mono() + absl::Seconds(20);
  while (clock.Mono() < until) {
    ibv_wc completion = {};
    const int polled = ibv_poll_cq(end.completions.get(), 1, &completion);
    if (polled < 0) return absl::InternalError("ibv_poll_cq failed");
    if (polled == 1) return completion.status;
    clock.SleepFor(absl::Microseconds(100));
  }
  return absl::DeadlineExceededError("no completion in 20 s");
}

}  // namespace cistern::transport::rdma
