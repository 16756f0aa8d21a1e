// One end of a queue pair: what is posted, what completes, and what is where meanwhile.
//
// Requests are queued, and posted together behind one doorbell. They complete in order; only the
// last of a batch that moves payload, and every eighth message, say so. The completion queue is the
// endpoint's own and holds whatever may ever complete: all that it may post, and every receive that
// may be taken for it.
#ifndef CISTERN_TRANSPORT_RDMA_ENDPOINT_H_
#define CISTERN_TRANSPORT_RDMA_ENDPOINT_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transport/rdma/buffers.h"
#include "transport/rdma/format.h"
#include "transport/rdma/host.h"

namespace cistern::transport::rdma {

enum class OpKind : uint8_t { kMessage, kWrite, kRead };

// What an endpoint tells, in Poll.
class EndpointEvents {
 public:
  virtual ~EndpointEvents() = default;
  // A message of the peer's; valid during the call. An error ends the connection.
  virtual absl::Status OnMessage(absl::Span<const uint8_t> message) = 0;
  // The oldest write or read that had not ended has.
  virtual void OnOpDone(OpKind kind, uint64_t bytes) = 0;
};

struct EndpointOptions {
  std::shared_ptr<Host> host;
  HostDevice* device = nullptr;
  ibv_comp_channel* channel = nullptr;  // borrowed
  std::shared_ptr<MessageBuffers> sends;
  std::shared_ptr<SharedReceives> receives;  // null: of its own
  // What the peer may do to registered memory.
  unsigned int remote_access = 0;
  // READs outstanding, whatever the peer says that it serves; 0 = as it says. For tests.
  uint8_t forced_reads = 0;
};

// Used by one thread at a time.
class Endpoint {
 public:
  static absl::StatusOr<std::unique_ptr<Endpoint>> Create(const EndpointOptions& options);
  ~Endpoint();

  uint32_t number() const { return queue_pair_->qp_num; }
  const ibv_cq* completion_queue() const { return completions_.get(); }
  HostDevice& device() const { return *options_.device; }
  Host& host() const { return *options_.host; }
  // Packets are at most so long, whatever the path takes; 0 = as that. Before IBV_QPS_RTR.
  void LimitMtu(uint32_t bytes) { mtu_bytes_ = bytes; }
  // Takes the queue pair to a state, as the connection manager and the host's options say.
  absl::Status Advance(rdma_cm_id* id, ibv_qp_state state);

  // The completion channel had an event for us.
  void OnEvent() { armed_ = false; }
  // Everything that has completed; then the next completion makes an event. Unavailable: the
  // connection is of no use any more; InvalidArgument: by the peer's fault.
  absl::Status Poll(EndpointEvents* events);

  // A buffer for a message; false: none now.
  bool TakeBuffer(uint32_t* slot) { return options_.sends->Take(slot); }
  void GiveBuffer(uint32_t slot) { options_.sends->Give(slot); }
  bool any_buffer() const { return options_.sends->any(); }
  uint8_t* buffer(uint32_t slot) { return options_.sends->at(slot); }
  // Messages that are queued or posted and not known to have arrived.
  uint32_t messages_in_flight() const { return messages_in_flight_; }
  // Takes the buffer over. Precondition: messages_in_flight() < kReceives.
  void QueueMessage(uint32_t slot, uint32_t bytes);
  // Whether another write or read may be queued.
  bool has_room() const { return ops_.size() + kReceives < depth_; }
  void QueueTransfer(OpKind kind, absl::Span<const ibv_sge> pieces, uint64_t remote_address,
                     uint32_t remote_key, uint64_t bytes);
  uint32_t reads_in_flight() const { return reads_in_flight_; }
  // Posts what is queued. `say`: its end is to be told even if it is one message.
  absl::Status Post(bool say);

  // The queue pair is gone after it: nothing is sent, and nothing lands.
  void Close();
  bool closed() const { return queue_pair_ == nullptr; }

 private:
  struct Op {
    OpKind kind;
    uint32_t slot;
    uint64_t bytes;
  };
  explicit Endpoint(const EndpointOptions& options) : options_(options) {}
  absl::Status Make();
  absl::Status PostReceive(uint32_t slot);
  void Complete(const ibv_wc& completion, EndpointEvents* events);
  void Retire(uint64_t sequence, EndpointEvents* events);
  void Fail(const ibv_wc& completion);
  uint8_t* received(uint32_t slot);

  const EndpointOptions options_;
  uint32_t depth_ = 0;
  uint32_t max_inline_bytes_ = 0;
  uint32_t mtu_bytes_ = 0;
  std::shared_ptr<MessageBuffers> own_receives_;
  CompletionQueue completions_;
  QueuePair queue_pair_;
  bool armed_ = false;
  absl::Status failure_;
  bool failure_is_flush_ = false;

  std::deque<Op> ops_;     // queued or posted, not complete
  uint64_t first_op_ = 1;  // sequence of ops_.front()
  uint32_t unsaid_ = 0;    // at the end of ops_: such as do not tell of their end
  bool batch_transfers_ = false;
  uint32_t messages_in_flight_ = 0;
  uint32_t reads_in_flight_ = 0;
  std::vector<ibv_send_wr> batch_;
  std::vector<ibv_sge> batch_pieces_;
};

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_ENDPOINT_H_
