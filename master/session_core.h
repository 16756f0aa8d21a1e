// One store's session: what it has sent, what it was told.
#ifndef CISTERN_MASTER_SESSION_CORE_H_
#define CISTERN_MASTER_SESSION_CORE_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "master/evictor.h"
#include "master/types.h"
#include "proto/store.pb.h"

namespace cistern::master {

struct PoolState;
struct Store;

// An Evict that a store was sent.
struct EvictCommand {
  uint64_t number = 0;
  std::vector<Victim> victims;
  size_t settled = 0;  // victims before this one are
};

// Promise: applies a store's records in order and once, acknowledges them, and knows of each Evict
// command what became of it.
//
//   1. AcceptHello decides: resume (same incarnation, its log still has what comes next), or a
//      snapshot. For a snapshot the store's mark (parity) is flipped; what the snapshot or a later
//      record shows gets the new mark, the rest is swept when the snapshot has ended. While a new
//      incarnation's snapshot runs, what it has not shown yet is not offered to readers.
//   2. Sequence numbers are half-open: SnapshotBegin.seq, resume_seq and Ack.seq name the next
//      record, every one below it is contained. Records before `next` are skipped, a gap ends the
//      session: the store reconnects and resumes. A gap at the end shows when nothing has come
//      between two heartbeats although the first announced more.
//   3. Evict commands are numbered. A victim is settled when its record arrives. A heartbeat that
//      acknowledges a command, once all records made before it are applied, settles the command:
//      victims that are still there were kept by the store and are taken back.
//   4. Close drops what is queued and has every victim taken back: the commands may be lost.
//
// Role: MasterCore and SessionCall drive it. Thread-safety: none. Borrows nothing: the pool and the
// store are passed in.
class SessionCore {
 public:
  static constexpr size_t kMaxQueued = 256;           // messages for the stream
  static constexpr size_t kMaxOpenVictims = 1 << 16;  // of commands that are not settled
  static constexpr uint32_t kMaxDeltaRecords = 4096;
  static constexpr uint32_t kMaxPageRecords = 16384;
  static constexpr size_t kMaxNamespaces = 1 << 20;
  static constexpr uint64_t kAckEvery = 1024;  // records; Tick acknowledges the rest

  SessionCore(SessionId id, StoreIndex store) : id_(id), store_(store) {}

  // Decides and fills the reply; sets the store's fields from the Hello. Unavailable: work that the
  // store's last session left behind is to be done first, in slices (MasterCore::TakeBackStep, the
  // sweep).
  // Preconditions: pool id, epoch and the store's free state were checked by MasterCore::OnHello.
  absl::Status AcceptHello(PoolState& pool, Store& store, const wire::SessionHello& hello,
                           MonoTime now, wire::SessionHelloAck* ack);

  // Applies at most kSliceKeys records from `*next` on; `*next` = record count when done.
  absl::Status OnDelta(PoolState& pool, Store& store, const wire::Delta& delta, size_t* next,
                       MonoTime now);
  // Also without having been asked: a store whose log has overflowed.
  absl::Status OnSnapshotBegin(PoolState& pool, Store& store, const wire::SnapshotBegin& begin);
  absl::Status OnSnapshotPage(PoolState& pool, Store& store, const wire::SnapshotPage& page,
                              size_t* next, MonoTime now);
  absl::Status OnSnapshotEnd(PoolState& pool, Store& store, const wire::SnapshotEnd& end);
  absl::Status OnHeartbeat(Store& store, const wire::Heartbeat& heartbeat, MonoTime now);
  // What became of the commands, at most kSliceKeys victims a call; after records and heartbeats.
  // True when there is nothing more to be learned now.
  bool SettleCommands(PoolState& pool, Store& store, MonoTime now);
  void OnClosed(PoolState& pool, Store& store, MonoTime now);

  // Room for another command, and the store can know what it is about.
  bool CanCommand() const {
    return queue_.size() < kMaxQueued && open_victims_ < kMaxOpenVictims && !ended_;
  }
  // Tells the store to drop the victims from these tiers, in messages of at most kMaxVictims.
  void QueueEvict(PoolState& pool, const std::vector<Victim>& victims, TierMask tiers,
                  wire::Cause cause);
  void QueueDropNamespace(PoolState& pool, const NamespaceId& ns);
  // The store is to drop what it has under this version, which the index does not have (any more).
  void AddStale(const ChunkName& name, Version version) { stale_.push_back({name, version}); }
  // Asks for every record made so far; FencePassed says when they are applied.
  uint64_t QueueFence();
  bool FencePassed(uint64_t fence) const { return passed_fence_ >= fence; }
  absl::Status OnFenceDone(const wire::FenceDone& done);
  void QueueEpochChanged(Epoch epoch);
  // Precondition: CanCommand().
  void QueueSegmentCommand(const PoolState& pool, const wire::SegmentCommand& command);
  // The last message of this session.
  void QueueError(const absl::Status& status);
  void QueueAckIfDue(bool now);

  bool HasOutput() const { return !queue_.empty() || !stale_.empty(); }
  void TakeOutput(PoolState& pool, size_t max, std::vector<wire::MasterMessage>* out);
  bool ended() const { return ended_; }

  SessionId id() const { return id_; }
  StoreIndex store() const { return store_; }
  size_t open_commands() const { return commands_.size(); }
  uint64_t next_seq() const { return next_seq_; }

 private:
  enum class Phase { kAwaitSnapshot, kSnapshot, kStreaming };

  // From now on other replicas than those of before carry the store's mark.
  static absl::Status FlipMark(Store& store, bool new_process);
  absl::Status AddNamespaces(PoolState& pool,
                             const google::protobuf::RepeatedPtrField<wire::NamespaceInfo>& infos);
  absl::Status ApplySlice(PoolState& pool, Store& store, const wire::Delta& delta, size_t begin,
                          size_t end, bool snapshot, MonoTime now);
  static bool Settled(PoolState& pool, const Store& store, const Victim& victim);
  wire::MasterMessage& Queue();
  void QueueStale(PoolState& pool);

  const SessionId id_;
  const StoreIndex store_;
  Phase phase_ = Phase::kStreaming;
  std::vector<NamespaceIndex> namespaces_;  // by the session's numbers
  absl::flat_hash_map<NamespaceIndex, uint32_t> namespace_numbers_;
  uint64_t next_seq_ = 0;
  uint64_t acked_seq_ = 0;
  uint64_t snapshot_id_ = 0;
  uint64_t snapshot_count_ = 0;
  KeyId snapshot_xor_;

  uint64_t next_command_ = 1;
  std::deque<EvictCommand> commands_;
  size_t open_victims_ = 0;
  uint64_t acked_command_ = 0;      // by the last heartbeat...
  uint64_t acked_command_seq_ = 0;  // ...whose earlier records end here
  uint64_t seq_at_heartbeat_ = 0;   // next_seq_ when it came
  uint64_t passed_fence_ = 0;
  struct Stale {
    ChunkName name;
    Version version;
  };
  std::vector<Stale> stale_;  // not in a command yet
  uint64_t last_stale_command_ = 0;
  std::deque<wire::MasterMessage> queue_;
  bool ended_ = false;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_SESSION_CORE_H_
