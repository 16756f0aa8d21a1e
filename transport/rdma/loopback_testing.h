// Two connected queue pairs of one port, by rdma_cm, in one process and one thread: for tests.
#ifndef CISTERN_TRANSPORT_RDMA_LOOPBACK_TESTING_H_
#define CISTERN_TRANSPORT_RDMA_LOOPBACK_TESTING_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transport/rdma/handles.h"

namespace cistern::transport::rdma {

// One end: its queue pair has a completion queue of its own.
struct LoopbackEnd {
  CmId id;
  CompletionQueue completions;
  QueuePair queue_pair;  // goes first
};

class Loopback {
 public:
  // Connects `client_address` to `server_address`, both addresses of ports of one host (numbers).
  static absl::StatusOr<std::unique_ptr<Loopback>> Connect(const std::string& client_address,
                                                           const std::string& server_address);

  LoopbackEnd& client() { return client_; }
  LoopbackEnd& server() { return server_; }
  ibv_pd* client_domain() { return client_domain_.get(); }
  ibv_pd* server_domain() { return server_domain_.get(); }

 private:
  Loopback() = default;
  absl::Status Listen(const std::string& address);
  absl::Status Dial(const std::string& from, const std::string& to);
  absl::Status AcceptOne();
  absl::Status FinishDialing();
  // The event of that kind on the client's or the server's channel, within 10 s.
  absl::StatusOr<CmEvent> Expect(rdma_event_channel* channel, rdma_cm_event_type type);
  absl::Status MakeReady(rdma_cm_id* id, LoopbackEnd* end, ProtectionDomain* domain);

  CmChannel server_channel_;
  CmChannel client_channel_;
  CmId listener_;
  ProtectionDomain server_domain_;
  ProtectionDomain client_domain_;
  LoopbackEnd server_;
  LoopbackEnd client_;
};

// Posts a request that is to be signalled, and waits at most 20 s for its completion: the status
// that it ends with, or an error where none comes.
absl::StatusOr<ibv_wc_status> PostAndWait(LoopbackEnd& end, ibv_send_wr request);

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_LOOPBACK_TESTING_H_
