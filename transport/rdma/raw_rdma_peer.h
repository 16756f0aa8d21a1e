// A peer that speaks to an RDMA server message by message, rightly or wrongly, and tries what it
// likes with its queue pair: for tests.
#ifndef CISTERN_TRANSPORT_RDMA_RAW_RDMA_PEER_H_
#define CISTERN_TRANSPORT_RDMA_RAW_RDMA_PEER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "transport/frame.h"
#include "transport/identity.h"
#include "transport/rdma/endpoint.h"
#include "transport/rdma/format.h"
#include "transport/rdma/handles.h"
#include "transport/rdma/host.h"

namespace cistern::transport::rdma {

// Used by one thread.
class RawRdmaPeer final : private EndpointEvents {
 public:
  // `private_data`: in place of a greeting.
  static absl::StatusOr<std::unique_ptr<RawRdmaPeer>> Connect(std::shared_ptr<Host> host,
                                                              const std::string& address,
                                                              uint16_t port,
                                                              std::string private_data = {});
  // The queue pair goes without a word, if Disconnect was not called.
  ~RawRdmaPeer() override;

  // All of it; an error says why not.
  absl::Status Handshake(const LocalIdentity& identity);

  // One message of just these bytes. False: the connection is gone.
  bool Send(std::string_view bytes);
  // One message that is right in every field but what the caller makes of it.
  bool SendMessage(std::string_view stream, const std::vector<Note>& notes = {},
                   uint16_t stream_credits = 0, uint16_t note_credits = 0);
  // A frame's header and meta as one message. Its payload, which is to follow, is the caller's.
  bool SendFrame(FrameType type, uint64_t id, std::string_view meta, uint64_t payload_bytes = 0,
                 std::string_view records = {});

  struct Frame {
    FrameHeader header;
    std::string meta;
  };
  // The next frame; of a payload behind it the records are still there (TakeRecord). Nothing when
  // the server has closed, or did not send in time.
  std::optional<Frame> Receive(absl::Duration patience = absl::Seconds(20));
  std::optional<Record> TakeRecord(absl::Duration patience = absl::Seconds(20));
  // What came so far.
  const std::vector<Note>& notes() const { return notes_; }

  // One WRITE or READ between our memory and the peer's. OK: it was done. Other errors name how its
  // work request ended.
  absl::Status Execute(OpKind kind, const ibv_sge& local, uint64_t remote_address,
                       uint32_t remote_key);
  // Takes what comes. True: the server closes the connection within `patience`.
  bool WaitClosed(absl::Duration patience = absl::Seconds(20));
  void Disconnect();

 private:
  explicit RawRdmaPeer(std::shared_ptr<Host> host) : host_(std::move(host)) {}
  absl::Status OnMessage(absl::Span<const uint8_t> message) override;
  void OnOpDone(OpKind, uint64_t) override { ++ended_; }
  absl::Status Dial(const std::string& address, uint16_t port, std::string private_data);
  absl::StatusOr<CmEvent> NextEvent(absl::Duration patience);
  // One look at what came, and a short rest where that was nothing. False: the connection is gone.
  bool Look();

  const std::shared_ptr<Host> host_;
  HostDevice* device_ = nullptr;
  CmChannel channel_;
  CmId id_;
  std::unique_ptr<Endpoint> endpoint_;
  std::string stream_;
  uint16_t stream_return_ = 0;  // credits to give back, as a good peer does
  uint16_t note_return_ = 0;
  std::vector<Note> notes_;
  int ended_ = 0;  // one-sided requests
  bool moved_ = false;
  absl::Status failure_;
};

// The bytes of a record.
std::string RecordBytes(RecordKind kind, uint32_t bytes, uint32_t key = 0, uint64_t address = 0);

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_RAW_RDMA_PEER_H_
