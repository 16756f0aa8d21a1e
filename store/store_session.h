// The store's side of its session with the master: what to send when, and what to do with what
// comes. Bytes and time come in by calls; store/session_client.h moves the messages.
//
//   1. hello_auth ->  <- auth_ack  auth ->  hello ->  <- hello_ack     (proto/store.proto)
//   2. the master asks for a snapshot, or resumes at a sequence number it names
//   3. deltas in order of their numbers; heartbeats go first and wait for nothing; snapshot pages
//      travel between deltas, which stay ordered on the one stream
#ifndef CISTERN_STORE_STORE_SESSION_H_
#define CISTERN_STORE_STORE_SESSION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "proto/store.pb.h"
#include "store/chunk_store.h"
#include "transport/handshake.h"
#include "transport/identity.h"

namespace cistern::store {

// How far a snapshot has got. Not nested: an optional member of a class cannot default-construct a
// nested type that is not complete yet.
struct SnapshotProgress {
  uint64_t id = 0;
  uint64_t seq = 0;
  bool begun = false;
  bool pages_done = false;
  uint64_t cursor = 0;
  uint64_t count = 0;
  KeyId xor_of_ids;
  bool page_turn = true;  // pages and deltas take turns
};

// Used by one thread at a time. Borrows the store and the identity.
class StoreSession {
 public:
  struct Options {
    std::string name;  // for people; empty = the first endpoint
    // Adds what the chunk store does not know (connections, wires) to a heartbeat.
    std::function<void(wire::StoreCounters*)> add_counters;
    // Carries out a SegmentCommand (never blocks), and gives the answers that are there.
    std::function<void(const wire::SegmentCommand&)> segment_command;
    std::function<std::optional<wire::SegmentDone>()> take_segment_done;
    MonoTime started_at;
  };

  StoreSession(const transport::LocalIdentity& identity, ChunkStore& chunks, Options options);

  // What clients dial; before the first OnConnected.
  void AddEndpoint(wire::Endpoint endpoint) { endpoints_.push_back(std::move(endpoint)); }

  // A new stream is there: its first message is ready.
  void OnConnected(MonoTime now);
  // The stream ended.
  void OnClosed(MonoTime now);
  // One message of the master. An error ends the stream: PermissionDenied (wrong token or pool),
  // InvalidArgument (it breaks the protocol), or what the master said.
  absl::Status OnMessage(const wire::MasterMessage& message, MonoTime now);

  // Fills the next message to write; false: nothing is due before NextWake().
  bool Next(MonoTime now, absl::Time wall, wire::StoreMessage* out);
  MonoTime NextWake(MonoTime now) const;

  // Asks the master for victims, at most once per kNeedBytesInterval.
  void NeedBytes(uint64_t bytes, uint64_t extent_bytes, MonoTime now);

  bool in_session() const { return state_ == State::kOpen; }
  // When a session was last open; the past is infinite before the first.
  std::optional<MonoTime> last_open() const { return last_open_; }
  uint64_t epoch() const { return highest_epoch_; }
  uint64_t snapshots_begun() const { return next_snapshot_id_ - 1; }
  uint64_t snapshots_sent() const { return snapshots_sent_; }

  static constexpr size_t kMaxDeltaRecords = 4'096;
  static constexpr size_t kMaxPageRecords = 16'384;
  static constexpr size_t kMaxSegmentAnswers = 64;
  static constexpr absl::Duration kNeedBytesInterval = absl::Milliseconds(20);

 private:
  enum class State { kClosed, kHelloAuth, kAwaitAck, kAuth, kHello, kAwaitHelloAck, kOpen };

  absl::Status OnAuthAck(const wire::HelloAck& ack);
  absl::Status OnHelloAck(const wire::SessionHelloAck& ack, MonoTime now);
  absl::Status OnEvict(const wire::Evict& evict);
  absl::Status OnDropNamespace(const wire::DropNamespace& drop);
  void OnFence(const wire::Fence& fence, MonoTime now);
  void OnSegmentCommand(const wire::SegmentCommand& command);
  void FillHello(wire::SessionHello* hello);
  void FillHeartbeat(MonoTime now, absl::Time wall, wire::Heartbeat* out);
  void CollectSegmentAnswers(MonoTime now);
  bool NextDelta(MonoTime now, wire::StoreMessage* out);
  bool NextSnapshotPart(wire::StoreMessage* out);
  void StartSnapshot();
  // Puts the session's numbers of namespaces in the place of the store's indexes, and tells of
  // those that the master has not heard of.
  void NumberNamespaces(wire::Delta* delta);
  uint32_t NumberOf(uint32_t index, wire::Delta* delta);

  const transport::LocalIdentity& identity_;
  ChunkStore& chunks_;
  const Options options_;
  std::vector<wire::Endpoint> endpoints_;

  State state_ = State::kClosed;
  std::optional<transport::ClientHandshake> handshake_;
  wire::Auth auth_;
  std::optional<MonoTime> last_open_;
  uint64_t highest_epoch_ = 0;
  uint64_t next_seq_ = 0;  // the next record to send
  // By the store's index; an index may have changed hands since, which its serial shows.
  struct ToldNamespace {
    uint64_t serial = 0;
    uint32_t number = 0;  // in the session's list
  };
  absl::flat_hash_map<uint32_t, ToldNamespace> namespaces_told_;
  uint32_t namespaces_sent_ = 0;
  // Answered once every record below `seq` is sent; a later fence stands for the earlier ones.
  struct OpenFence {
    uint64_t command;
    uint64_t seq;
  };
  std::optional<OpenFence> fence_;
  std::optional<MonoTime> delta_due_;  // unsent records exist since delta_flush before this
  MonoTime heartbeat_due_;
  MonoTime need_bytes_allowed_;
  std::optional<wire::NeedBytes> need_bytes_;
  absl::Duration delta_flush_ = absl::Milliseconds(2);
  absl::Duration heartbeat_ = absl::Milliseconds(500);
  uint64_t last_command_ = 0;

  // Answers to SegmentCommands, to be sent. Each behind a heartbeat that shows what it speaks of.
  std::deque<wire::SegmentDone> segment_answers_;

  std::optional<SnapshotProgress> snapshot_;
  uint64_t next_snapshot_id_ = 1;
  uint64_t snapshots_sent_ = 0;  // to the end
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_STORE_SESSION_H_
