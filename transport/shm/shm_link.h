// One end of a shared-memory connection: frames and records on a UNIX socket, payload in memory.
//
//   1. The handshake is that of every stream wire. With its AuthOk the store hands over the ring's
//      memory and an eventfd. A connection for small messages gets neither: all of it is in line.
//   2. A sender copies a piece of payload into the ring and then writes the record that announces
//      it, where the payload would be in line. Records are thus never ahead of their bytes.
//   3. The receiver copies the piece to where it belongs and moves `released` on.
//   4. A sender without room says in `wake_at` when it wants to be woken: the store by the eventfd,
//      which works also while it does not read; the client, which always reads, by a record.
//   5. A client may let the store read a piece where it is, in memory that it lent (records kLend,
//      kLent, kUnlend). Stores never write to a client's memory: once a call has returned nothing
//      can land in it, whatever becomes of the store (docs/decisions).
#ifndef CISTERN_TRANSPORT_SHM_SHM_LINK_H_
#define CISTERN_TRANSPORT_SHM_SHM_LINK_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/shm/borrowed_memory.h"
#include "transport/shm/fd_socket.h"
#include "transport/shm/format.h"
#include "transport/shm/lent_memory.h"
#include "transport/shm/ring.h"
#include "transport/shm/ring_memory.h"
#include "transport/stream/link.h"

namespace cistern::transport {

// What both ends have in common. Used by one thread at a time, except wants_write.
class ShmLink : public StreamLink, public PieceCarrier {
 public:
  absl::StatusOr<Received> Read(absl::Span<const iovec> pieces) override;
  absl::Status Write(absl::Span<const iovec> pieces, absl::Span<const PieceKind> kinds,
                     size_t* taken) override;
  LinkBlock blocked() const override { return blocked_; }
  bool wants_write() const override { return leftover_at_ < leftover_.size(); }
  PieceCarrier* carrier() override { return memory_ ? this : nullptr; }

  bool IsRecord(const uint8_t* bytes) const override { return HasRecordMagic(bytes); }
  absl::Status OnRecord(const uint8_t* record, uint64_t* piece_bytes) override;
  absl::Status Copy(absl::Span<const iovec> to) override;
  absl::Status Skip(uint64_t bytes) override;
  absl::Span<const char> Peek(size_t max) override;

 protected:
  explicit ShmLink(int socket) : socket_(socket) {}

  // The rings are there from now on.
  void UseRings(RingMemory memory, RingCounters* out_counters, char* out_ring,
                RingCounters* in_counters, const char* in_ring);
  // How many descriptors a message may bring now.
  virtual size_t fds_wanted() const = 0;
  // Adds what this end has to say by itself to a Write.
  virtual void AddOwnRecords() {}
  // Lets the peer read `data` where it is, rather than by the ring: fills the record. False: not
  // this one (now). *stop: not in this Write.
  virtual bool TryLend(const void* /*data*/, uint64_t /*bytes*/, PieceRecord* /*record*/,
                       bool* /*stop*/) {
    return false;
  }
  // A record of this kind came; bytes and position are as the peer wrote them.
  virtual absl::Status OnOtherRecord(const PieceRecord& record, uint64_t* piece_bytes) = 0;
  virtual absl::Status ReadLent(uint64_t offset, absl::Span<const iovec> to);
  virtual absl::Span<const char> PeekLent(uint64_t /*offset*/, uint64_t /*bytes*/) { return {}; }
  // The peer waits for the room that was just made.
  virtual void WakePeer() = 0;

  static constexpr size_t kMaxRecords = 64;  // of one Write
  bool HasRecordSlot() const { return record_count_ < kMaxRecords; }
  void AddRecord(const PieceRecord& record);
  // Goes along with the Write under way, or the next.
  void AttachFd(int fd) { fds_to_send_.push_back(fd); }
  bool attached_any() const { return !fds_to_send_.empty(); }
  void Unblock() {
    if (blocked_ == LinkBlock::kPeer) blocked_ = LinkBlock::kNone;
  }
  absl::Status AnnouncePiece(uint32_t bytes, bool lent, uint16_t buffer, uint64_t offset,
                             uint64_t* piece_bytes);

  std::vector<OwnedFd> received_fds_;
  RingMemory memory_;
  std::optional<RingSender> out_;
  std::optional<RingReceiver> in_;
  uint16_t lent_buffer_ = 0;  // of the piece under way

 private:
  absl::Status Gather(absl::Span<const iovec> pieces, absl::Span<const PieceKind> kinds,
                      size_t* taken);
  absl::Status GatherPayload(iovec piece, bool checked, size_t* taken, bool* stop);
  // Room for a piece of `wanted` bytes, or for a useful part of it; 0: blocked.
  absl::StatusOr<uint64_t> RoomFor(uint64_t wanted);
  absl::Status SendBatch();
  absl::Status SendLeftover();

  const int socket_;
  LinkBlock blocked_ = LinkBlock::kNone;
  // Of the Write under way.
  std::vector<iovec> batch_;
  std::array<PieceRecord, kMaxRecords> records_;
  std::array<std::array<uint8_t, kRecordBytes>, kMaxRecords> record_bytes_;
  size_t record_count_ = 0;
  bool ring_record_open_ = false;  // the last record is a ring piece that may grow
  // What the socket did not take of an earlier one: bytes whose payload is in the ring already.
  std::string leftover_;
  size_t leftover_at_ = 0;
  std::vector<int> fds_to_send_;
  // The piece that is being received.
  uint64_t piece_left_ = 0;
  bool piece_is_lent_ = false;
  uint64_t lent_offset_ = 0;
};

// What the connections of a store share. Thread-safe.
struct ShmBudget {
  ShmBudget(uint64_t ring_bytes, uint64_t lent_bytes)
      : mapped_bytes_left(static_cast<int64_t>(ring_bytes)),
        lent(std::make_shared<MapBudget>(lent_bytes)) {}
  std::atomic<int64_t> mapped_bytes_left;  // of rings
  std::atomic<int64_t> lends_left{4096};
  const std::shared_ptr<MapBudget> lent;
};

class ShmServerLink final : public ShmLink {
 public:
  ShmServerLink(int socket, uint64_t ring_bytes, std::shared_ptr<ShmBudget> budget)
      : ShmLink(socket), ring_bytes_(ring_bytes), budget_(std::move(budget)) {}
  ~ShmServerLink() override;

  absl::Status OnServerReady(bool small_lane, wire::AuthOk* ok) override;
  bool wants_write() const override { return room_due_ || ShmLink::wants_write(); }
  int extra_fd() const override { return event_fd_.get(); }
  void OnExtraEvent() override { Unblock(); }

  // The most buffers that a connection may lend.
  static constexpr uint32_t kMaxLends = 16;

 private:
  size_t fds_wanted() const override { return max_lends_ > 0 ? 1 : 0; }
  void AddOwnRecords() override;
  absl::Status OnOtherRecord(const PieceRecord& record, uint64_t* piece_bytes) override;
  absl::Status ReadLent(uint64_t offset, absl::Span<const iovec> to) override;
  absl::Span<const char> PeekLent(uint64_t offset, uint64_t bytes) override;
  void WakePeer() override { room_due_ = true; }
  // With its descriptor and the eventfd, or none of them.
  absl::StatusOr<RingMemory> MakeRing();

  const uint64_t ring_bytes_;
  const std::shared_ptr<ShmBudget> budget_;
  uint64_t charged_bytes_ = 0;
  uint32_t max_lends_ = 0;
  OwnedFd ring_fd_;  // until it was handed over
  OwnedFd event_fd_;
  std::optional<BorrowedMemory> borrowed_;  // with the rings
  bool room_due_ = false;
};

class ShmClientLink final : public ShmLink {
 public:
  // `lent` may be null. `write_soon`: see ClientWire::MakeLink.
  ShmClientLink(int socket, std::shared_ptr<LentMemory> lent, std::function<void()> write_soon);
  ~ShmClientLink() override;

  absl::Status OnClientReady(const wire::AuthOk& ok) override;
  bool wants_write() const override { return UnlendsDue() || ShmLink::wants_write(); }

  // Shorter pieces go by the ring: a record and a read each would cost more than the copy.
  static constexpr uint64_t kLeastLentBytes = 32 << 10;

 private:
  struct Lend {
    std::shared_ptr<const LentMemory::Region> region;  // keeps the descriptor open
  };
  size_t fds_wanted() const override { return memory_ ? 0 : kMaxFdsPerMessage; }
  void AddOwnRecords() override;
  bool TryLend(const void* data, uint64_t bytes, PieceRecord* record, bool* stop) override;
  absl::Status OnOtherRecord(const PieceRecord& record, uint64_t* piece_bytes) override;
  void WakePeer() override;
  bool UnlendsDue() const;

  const std::shared_ptr<LentMemory> lent_;
  uint64_t listener_ = 0;
  OwnedFd event_fd_;
  std::vector<Lend> lends_;  // by number; a null region is a free number
  size_t lent_count_ = 0;
  uint64_t seen_version_ = 0;
  std::shared_ptr<const LentMemory::Table> table_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_SHM_LINK_H_
