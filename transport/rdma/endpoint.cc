#include "transport/rdma/endpoint.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace cistern::transport::rdma {
namespace {

constexpr int kPolledAtOnce = 16;
// A message that does not tell of its end keeps its buffer until a later one does.
constexpr uint32_t kMostUnsaid = 8;

uint32_t MtuBytes(ibv_mtu mtu) { return mtu <= IBV_MTU_256 ? 0 : 128u << static_cast<int>(mtu); }

void Count(std::atomic<uint64_t>& counter, uint64_t n = 1) {
  counter.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Create(const EndpointOptions& options) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(options));
  CISTERN_RETURN_IF_ERROR(endpoint->Make());
  return endpoint;
}

absl::Status Endpoint::Make() {
  const HostDevice& device = *options_.device;
  // Room for the messages, and something beside them.
  depth_ = std::max<uint32_t>(options_.host->options().queue_depth, 2 * kReceives);
  const uint32_t receives = options_.receives != nullptr ? options_.receives->count() : kReceives;
  const uint32_t entries = depth_ + receives;
  if (device.max_completions != 0 && entries > device.max_completions) {
    return absl::ResourceExhaustedError(absl::StrCat("rdma: a completion queue of ", entries,
                                                     " entries, the device has ",
                                                     device.max_completions));
  }
  CISTERN_ASSIGN_OR_RETURN(
      completions_,
      CreateCompletionQueue(device.context, static_cast<int>(entries), options_.channel));
  if (ibv_req_notify_cq(completions_.get(), 0) != 0) {
    return absl::UnavailableError("rdma: ibv_req_notify_cq failed");
  }
  armed_ = true;
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = attributes.recv_cq = completions_.get();
  attributes.srq = options_.receives != nullptr ? options_.receives->queue() : nullptr;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = depth_;
  attributes.cap.max_recv_wr = options_.receives != nullptr ? 0 : kReceives;
  attributes.cap.max_send_sge = device.max_pieces;
  attributes.cap.max_recv_sge = 1;
  max_inline_bytes_ = options_.host->options().max_inline_bytes;
  attributes.cap.max_inline_data = max_inline_bytes_;
  auto made = CreateQueuePair(device.domain.get(), &attributes);
  if (!made.ok() && max_inline_bytes_ > 0) {
    // The device may have no room for as much: then messages are fetched.
    max_inline_bytes_ = attributes.cap.max_inline_data = 0;
    made = CreateQueuePair(device.domain.get(), &attributes);
  }
  if (!made.ok()) return made.status();
  queue_pair_ = *std::move(made);
  options_.device->queue_pairs.fetch_add(1, std::memory_order_relaxed);
  if (options_.receives == nullptr) {
    CISTERN_ASSIGN_OR_RETURN(own_receives_, MessageBuffers::Create(device.domain.get(), kReceives));
  }
  return absl::OkStatus();
}

Endpoint::~Endpoint() { Close(); }

absl::Status Endpoint::Advance(rdma_cm_id* id, ibv_qp_state state) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  ibv_qp_attr attributes = {};
  attributes.qp_state = state;
  int mask = 0;
  if (verbs->cm.init_qp_attr(id, &attributes, &mask) != 0) {
    return ErrnoStatus(errno, "rdma_init_qp_attr");
  }
  const HostOptions& host = options_.host->options();
  if (state == IBV_QPS_INIT) attributes.qp_access_flags = options_.remote_access;
  if (state == IBV_QPS_RTR) {
    while (mtu_bytes_ != 0 && MtuBytes(attributes.path_mtu) > mtu_bytes_) {
      attributes.path_mtu = static_cast<ibv_mtu>(attributes.path_mtu - 1);
    }
    if (host.service_level != 0) {
      attributes.ah_attr.sl = static_cast<uint8_t>(host.service_level);
    }
    if (host.traffic_class != 0 && attributes.ah_attr.is_global != 0) {
      attributes.ah_attr.grh.traffic_class = static_cast<uint8_t>(host.traffic_class);
    }
  }
  if (state == IBV_QPS_RTS) {
    attributes.timeout = host.timeout_exponent;
    attributes.retry_cnt = static_cast<uint8_t>(host.retry_count);
    if (options_.forced_reads != 0) attributes.max_rd_atomic = options_.forced_reads;
  }
  const int error = verbs->modify_qp(queue_pair_.get(), &attributes, mask);
  if (error != 0) return ErrnoStatus(error, "ibv_modify_qp");
  if (state == IBV_QPS_INIT && own_receives_ != nullptr) {
    for (uint32_t slot = 0; slot < kReceives; ++slot) CISTERN_RETURN_IF_ERROR(PostReceive(slot));
  }
  return absl::OkStatus();
}

absl::Status Endpoint::PostReceive(uint32_t slot) {
  if (options_.receives != nullptr) return options_.receives->Post(slot);
  ibv_sge piece = {reinterpret_cast<uintptr_t>(own_receives_->at(slot)), kMessageBytes,
                   own_receives_->key()};
  ibv_recv_wr request = {};
  request.wr_id = kReceiveBit | slot;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(queue_pair_.get(), &request, &bad);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "ibv_post_recv");
}

uint8_t* Endpoint::received(uint32_t slot) {
  return options_.receives != nullptr ? options_.receives->at(slot) : own_receives_->at(slot);
}

// --- completions ---

absl::Status Endpoint::Poll(EndpointEvents* events) {
  if (closed()) return absl::UnavailableError("rdma: the queue pair is closed");
  ibv_wc completions[kPolledAtOnce];
  for (;;) {
    const int n = ibv_poll_cq(completions_.get(), kPolledAtOnce, completions);
    if (n < 0) return absl::UnavailableError("rdma: ibv_poll_cq failed");
    Count(options_.host->counters().completions, static_cast<uint64_t>(n));
    for (int i = 0; i < n; ++i) Complete(completions[i], events);
    if (n > 0) continue;
    if (armed_) break;
    // What completed before this makes no event: looked at once more.
    armed_ = true;
    if (ibv_req_notify_cq(completions_.get(), 0) != 0) {
      return absl::UnavailableError("rdma: ibv_req_notify_cq failed");
    }
  }
  return failure_;
}

void Endpoint::Complete(const ibv_wc& completion, EndpointEvents* events) {
  const bool good = completion.status == IBV_WC_SUCCESS;
  if (!good) Fail(completion);
  if ((completion.wr_id & kReceiveBit) == 0) {
    if (good) Retire(completion.wr_id, events);
    return;
  }
  const auto slot = static_cast<uint32_t>(completion.wr_id & ~kReceiveBit);
  if (good && failure_.ok()) {
    if (completion.opcode == IBV_WC_RECV) {
      failure_ = events->OnMessage({received(slot), completion.byte_len});
    } else {
      failure_ = absl::InvalidArgumentError("rdma: what came is no message");
    }
  }
  // Of the queue pair's own receives none is needed once it has failed.
  if (options_.receives == nullptr && !failure_.ok()) return;
  if (absl::Status status = PostReceive(slot); !status.ok() && failure_.ok()) failure_ = status;
}

void Endpoint::Retire(uint64_t sequence, EndpointEvents* events) {
  while (!ops_.empty() && first_op_ <= sequence) {
    const Op op = ops_.front();
    ops_.pop_front();
    ++first_op_;
    if (op.kind == OpKind::kMessage) {
      GiveBuffer(op.slot);
      --messages_in_flight_;
      continue;
    }
    if (op.kind == OpKind::kRead) --reads_in_flight_;
    // After a failure nobody is told: what follows the end of the connection is its own end.
    if (failure_.ok()) events->OnOpDone(op.kind, op.bytes);
  }
}

void Endpoint::Fail(const ibv_wc& completion) {
  const auto status = static_cast<size_t>(completion.status);
  Count(options_.host->counters().failed[std::min(status, HostCounters::kStatuses - 1)]);
  // The first says why; the rest were flushed behind it.
  const bool flush = completion.status == IBV_WC_WR_FLUSH_ERR;
  if (!failure_.ok() && (!failure_is_flush_ || flush)) return;
  failure_is_flush_ = flush;
  const auto verbs = LoadVerbs();
  const std::string why =
      absl::StrCat("rdma: ", verbs.ok() ? (*verbs)->wc_status_str(completion.status) : "failed");
  const bool peers_fault = completion.status == IBV_WC_REM_ACCESS_ERR;
  failure_ = peers_fault ? absl::InvalidArgumentError(why +
                                                      " (the peer named memory that is not "
                                                      "open to us)")
                         : absl::UnavailableError(why);
}

// --- requests ---

void Endpoint::QueueMessage(uint32_t slot, uint32_t bytes) {
  CISTERN_CHECK(messages_in_flight_ < kReceives);
  ++messages_in_flight_;
  ops_.push_back({OpKind::kMessage, slot, bytes});
  batch_pieces_.push_back(
      {reinterpret_cast<uintptr_t>(buffer(slot)), bytes, options_.sends->key()});
  ibv_send_wr request = {};
  request.wr_id = first_op_ + ops_.size() - 1;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  if (bytes <= max_inline_bytes_) request.send_flags = IBV_SEND_INLINE;
  batch_.push_back(request);
}

void Endpoint::QueueTransfer(OpKind kind, absl::Span<const ibv_sge> pieces, uint64_t remote_address,
                             uint32_t remote_key, uint64_t bytes) {
  CISTERN_CHECK(has_room() && !pieces.empty() && pieces.size() <= options_.device->max_pieces);
  ops_.push_back({kind, 0, bytes});
  batch_transfers_ = true;
  if (kind == OpKind::kRead) ++reads_in_flight_;
  batch_pieces_.insert(batch_pieces_.end(), pieces.begin(), pieces.end());
  ibv_send_wr request = {};
  request.wr_id = first_op_ + ops_.size() - 1;
  request.num_sge = static_cast<int>(pieces.size());
  request.opcode = kind == OpKind::kWrite ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  request.wr.rdma.remote_addr = remote_address;
  request.wr.rdma.rkey = remote_key;
  batch_.push_back(request);
}

absl::Status Endpoint::Post(bool say) {
  if (batch_.empty()) return absl::OkStatus();
  if (closed()) return absl::UnavailableError("rdma: the queue pair is closed");
  HostCounters& counters = options_.host->counters();
  size_t piece = 0;
  for (size_t i = 0; i < batch_.size(); ++i) {
    ibv_send_wr& request = batch_[i];
    request.sg_list = &batch_pieces_[piece];
    piece += static_cast<size_t>(request.num_sge);
    request.next = i + 1 < batch_.size() ? &batch_[i + 1] : nullptr;
    Count(request.opcode == IBV_WR_SEND         ? counters.sends
          : request.opcode == IBV_WR_RDMA_WRITE ? counters.writes
                                                : counters.reads);
  }
  unsaid_ += static_cast<uint32_t>(batch_.size());
  if (say || batch_transfers_ || unsaid_ >= kMostUnsaid) {
    batch_.back().send_flags |= IBV_SEND_SIGNALED;
    unsaid_ = 0;
  }
  Count(counters.doorbells);
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queue_pair_.get(), batch_.data(), &bad);
  batch_.clear();
  batch_pieces_.clear();
  batch_transfers_ = false;
  return error == 0 ? absl::OkStatus()
                    : absl::UnavailableError(ErrnoStatus(error, "ibv_post_send").message());
}

void Endpoint::Close() {
  if (queue_pair_ == nullptr && completions_ == nullptr) return;
  if (queue_pair_ != nullptr) {
    const auto verbs = LoadVerbs();
    // First into the error state: a receive that is being filled then ends, and its buffer with it.
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_ERR;
    if (verbs.ok()) (*verbs)->modify_qp(queue_pair_.get(), &attributes, IBV_QP_STATE);
    queue_pair_.reset();
    options_.device->queue_pairs.fetch_sub(1, std::memory_order_relaxed);
  }
  if (completions_ != nullptr && options_.receives != nullptr) {
    ibv_wc completions[kPolledAtOnce];
    int n = 0;
    while ((n = ibv_poll_cq(completions_.get(), kPolledAtOnce, completions)) > 0) {
      for (int i = 0; i < n; ++i) {
        if ((completions[i].wr_id & kReceiveBit) == 0) continue;
        const auto slot = static_cast<uint32_t>(completions[i].wr_id & ~kReceiveBit);
        if (absl::Status status = options_.receives->Post(slot); !status.ok()) {
          CISTERN_LOG_EVERY(Error, absl::Seconds(10), "a receive was lost: ", status.ToString());
        }
      }
    }
  }
  completions_.reset();
  for (const Op& op : ops_) {
    if (op.kind == OpKind::kMessage) GiveBuffer(op.slot);
  }
  ops_.clear();
  messages_in_flight_ = reads_in_flight_ = 0;
  batch_.clear();
  batch_pieces_.clear();
  own_receives_.reset();
}

}  // namespace cistern::transport::rdma
