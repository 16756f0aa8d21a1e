// One end of an RDMA connection, as the stream wires' state machines see it: a stream of frames by
// SEND, payload by WRITE (store to client) and READ (store from client), both begun by the store.
// The steps are in format.h. Whoever sends payload offers at most a window of it ahead of the
// answers; whoever receives asks the sink for places for all that is offered of a frame at once.
//
// Payload that lies where the device does not reach, and pieces too short to be worth a place of
// their own, go through a small registered ring at that end.
//
// Quiet: the places that a client names are those of the one frame that its reader is at; it reads
// on when all of them have landed, or the answer of the frame's sender says that they will not be
// used. So an answer that ends a call (CancelDone, an error, the final frame) stands in the stream
// behind the last byte that could land for it. What a client offers counts as unquiet until the
// store has said that it is taken. Where no answer comes the connection is closed: the queue pair
// is destroyed first.
#ifndef CISTERN_TRANSPORT_RDMA_RDMA_LINK_H_
#define CISTERN_TRANSPORT_RDMA_RDMA_LINK_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "transport/rdma/buffers.h"
#include "transport/rdma/endpoint.h"
#include "transport/rdma/format.h"
#include "transport/stream/link.h"

namespace cistern::transport::rdma {

// What a link has of the connection manager. Used by one thread at a time.
class CmSide {
 public:
  virtual ~CmSide() = default;
  // Takes events of the completion channel, where the link has one of its own, and of the
  // connection manager. Unavailable: the peer has gone.
  virtual absl::Status Check(Endpoint* endpoint) = 0;
  // Tells the peer. Before the queue pair goes.
  virtual void Disconnect() = 0;
};

// What both ends have in common. Used by one thread at a time.
class RdmaLink : public StreamLink, public PlacingCarrier, protected EndpointEvents {
 public:
  // Places shorter than this are not named: the ring costs less.
  static constexpr size_t kLeastDirectBytes = 512;
  // A run of payload to this length follows in the stream.
  static constexpr uint64_t kMostRawBytes = 2048;
  // Payload offered and not yet quiet.
  static constexpr uint64_t kWindowBytes = 4 << 20;
  // Payload of one work request: what is told of at once when it has landed.
  static constexpr uint64_t kTransferBytes = 256 << 10;
  // A peer's offers, or places, that wait to be used. One that keeps to the rules has no more: it
  // stops at the window, and what it names is kLeastDirectBytes long or lies behind such a one.
  static constexpr uint64_t kMostOfferedBytes = kWindowBytes + kTransferBytes;
  static constexpr size_t kMostOffers = 4 * kWindowBytes / kLeastDirectBytes;

  ~RdmaLink() override;

  // StreamLink
  absl::StatusOr<Received> Read(absl::Span<const iovec> pieces) override;
  absl::Status Write(absl::Span<const iovec> pieces, absl::Span<const PieceKind> kinds,
                     size_t* taken) override;
  LinkBlock blocked() const override;
  absl::Status Progress() override;
  absl::Status Flush() override;
  bool has_unread() const override { return inbound_at_ < inbound_.size(); }
  bool delivered() const override { return endpoint_->messages_in_flight() == 0; }
  uint64_t unquiet_bytes() const override;
  void Close() override;
  bool WentStale() override { return !Progress().ok(); }
  PlacingCarrier* placing_carrier() override { return this; }
  absl::Status OnServerReady(bool small_lane, wire::AuthOk* ok) override;
  absl::Status OnClientReady(const wire::AuthOk&) override;

  // PlacingCarrier
  bool IsRecord(const uint8_t* bytes) const override { return HasRecordMagic(bytes); }
  bool IsRaw(const uint8_t* record) const override;
  absl::StatusOr<Announced> OnRecord(const uint8_t* record) override;
  uint64_t unplaced_bytes() const override { return unplaced_; }
  uint64_t placed_bytes() const override { return placed_; }
  bool can_place_again() const override;
  void PassOver(uint64_t bytes) override;
  Arrived arrived() const override;
  void Take(uint64_t bytes) override;

  const Endpoint& endpoint() const { return *endpoint_; }
  // The completion channel, where it is not the link's own, had an event for it.
  void OnCompletionEvent() { endpoint_->OnEvent(); }

 protected:
  // `out_rights`: of the memory that payload may be fetched from.
  RdmaLink(std::unique_ptr<Endpoint> endpoint, std::unique_ptr<CmSide> cm,
           unsigned int bounce_access, MemoryRights out_rights);

  // Payload that was offered, in order.
  struct OutSegment {
    uint64_t position = 0;  // of its first byte in all that Write took
    uint32_t bytes = 0;
    uint32_t bounced = 0;  // of them: 0 or all
    const uint8_t* data = nullptr;
    uint32_t local_key = 0;
    uint32_t remote_key = 0;
  };
  // Payload that was announced and has a place, in order.
  struct InPiece {
    uint8_t* to = nullptr;
    const uint8_t* bounce = nullptr;  // where it comes first
    uint32_t bytes = 0;
    bool wanted = false;
  };
  struct Offer {
    uint32_t bytes = 0;
    uint32_t key = 0;
    uint64_t address = 0;
  };

  // The next `count` segments of out_ were made of a run: announces them.
  virtual void AnnounceSegments(absl::Span<const OutSegment> segments) = 0;
  // How many records may be appended for a run's segments.
  virtual size_t segments_at_once() const = 0;
  virtual absl::Status OnNote(const Note& note) = 0;
  virtual absl::Status OnOffer(const Record& record) = 0;
  virtual void OnPassedOver(uint64_t bytes) = 0;
  // Nobody wants these bytes, and those before them have arrived.
  virtual void OnUnwantedReached(uint64_t /*bytes*/) {}
  // Queues what can be queued now.
  virtual void Pump() {}

  void OnOpDone(OpKind kind, uint64_t bytes) override = 0;
  absl::Status OnMessage(absl::Span<const uint8_t> message) override;

  void AddNote(const Note& note);
  void AppendRecord(const Record& record);
  // Ends the message under way, if there is one, with the notes that fit.
  void CloseMessage();
  // Sends notes, or credits that are due, without waiting for a message of the stream.
  void SendNotes();
  // Bytes of the stream that can be appended now: at least that many.
  size_t StreamRoom() const;
  void AdvanceQuiet(uint64_t bytes);
  // The next wanted bytes are in their places.
  void Arrive(uint64_t bytes);
  void AddPlace(const InPiece& piece);
  uint64_t awaited_bytes() const { return awaited_; }
  // Why the connection is of no use any more: nothing lands, nothing is sent. What had come before
  // is still read.
  const absl::Status& failure() const { return failure_; }

  const std::unique_ptr<Endpoint> endpoint_;
  BounceRing out_ring_;
  BounceRing in_ring_;
  std::deque<OutSegment> out_;
  std::deque<Offer> offers_;  // no place yet
  uint64_t unplaced_ = 0;
  bool starved_ = false;  // Place could not go on

 private:
  absl::Status PrepareRings();
  bool CanOpenStream() const;
  bool OpenMessage();
  size_t AppendStream(const void* data, size_t bytes);
  absl::Status WritePayload(absl::Span<const iovec> run, size_t* taken);
  absl::Status OfferRun(absl::Span<const iovec> run, size_t* taken);
  void FinishMessage(uint32_t slot, uint32_t stream_bytes);
  void ReachUnwanted();
  void AddArrived(uint64_t bytes, bool wanted);
  absl::Status OnStreamMessage(uint32_t bytes);

  const std::unique_ptr<CmSide> cm_;
  const MemoryRights out_rights_;
  absl::Status failure_;
  bool ready_ = false;  // the handshake is over

  // Sending.
  enum class Wait { kNothing, kStream, kWindow, kRing };
  Wait wait_ = Wait::kNothing;
  bool message_open_ = false;
  uint32_t open_slot_ = 0;
  uint32_t open_bytes_ = 0;
  uint32_t stream_messages_ = 0;  // credits left
  uint32_t note_messages_ = 0;
  std::deque<Note> notes_;
  uint64_t raw_left_ = 0;
  uint64_t taken_ = 0;

  // Receiving.
  std::string inbound_;  // bytes of the stream, from inbound_at_
  size_t inbound_at_ = 0;
  std::deque<uint32_t> inbound_messages_;  // bytes left of each
  uint32_t stream_return_ = 0;             // credits to give back
  uint32_t note_return_ = 0;
  std::deque<InPiece> in_;
  uint64_t placed_ = 0;
  uint64_t awaited_ = 0;  // of in_, wanted
  std::deque<Arrived> arrived_;
};

// The end that transfers.
class StoreLink : public RdmaLink {
 public:
  StoreLink(std::unique_ptr<Endpoint> endpoint, std::unique_ptr<CmSide> cm)
      : RdmaLink(std::move(endpoint), std::move(cm), IBV_ACCESS_LOCAL_WRITE, MemoryRights::kLocal) {
  }

  bool receiving() const override { return endpoint_->reads_in_flight() > 0; }
  absl::StatusOr<uint64_t> Place(absl::Span<const iovec> to) override;

 private:
  struct Target {
    uint64_t address = 0;
    uint32_t key = 0;
    uint32_t bytes = 0;
    bool wanted = false;
  };
  struct Passed {  // of the offered payload, in order
    uint64_t bytes = 0;
    bool done = false;
  };
  void AnnounceSegments(absl::Span<const OutSegment> segments) override;
  size_t segments_at_once() const override { return SIZE_MAX; }
  absl::Status OnNote(const Note& note) override;
  absl::Status OnOffer(const Record& record) override;
  void OnPassedOver(uint64_t) override {}
  void OnUnwantedReached(uint64_t bytes) override;
  void Pump() override;
  void OnOpDone(OpKind kind, uint64_t bytes) override;
  uint32_t Gather(uint64_t bytes);
  void PassQuiet();
  void TellLanded();
  // One READ of the first offer's bytes to the front of `to`, which it moves on. Its bytes; 0: none
  // can be begun now.
  absl::StatusOr<uint64_t> PlaceOne(absl::Span<iovec>* to);

  uint64_t unanswered_ = 0;  // offered
  std::deque<Target> targets_;
  std::deque<Passed> passed_;
  std::deque<ibv_sge> unwritten_;  // of out_
  uint64_t untold_ = 0;            // written, and kLanded not yet said
  std::vector<ibv_sge> pieces_;
};

// The end whose memory is written and read.
class ClientLink final : public RdmaLink {
 public:
  ClientLink(std::unique_ptr<Endpoint> endpoint, std::unique_ptr<CmSide> cm)
      : RdmaLink(std::move(endpoint), std::move(cm),
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
                 MemoryRights::kRemoteRead) {}

  absl::StatusOr<uint64_t> Place(absl::Span<const iovec> to) override;

 private:
  void AnnounceSegments(absl::Span<const OutSegment> segments) override;
  size_t segments_at_once() const override { return StreamRoom() / kRecordBytes; }
  absl::Status OnNote(const Note& note) override;
  absl::Status OnOffer(const Record& record) override;
  void OnPassedOver(uint64_t bytes) override;
  void OnOpDone(OpKind, uint64_t) override {}
};

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_RDMA_LINK_H_
