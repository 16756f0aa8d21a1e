#include "master/session_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/status.h"
#include "base/string_view.h"
#include "master/background.h"
#include "master/pool_state.h"
#include "master/records.h"

namespace cistern::master {
namespace {

// Records that one step applies: each costs a few times what a key of a lookup does, and a lookup
// may be waiting.
constexpr size_t kSliceRecords = kSliceKeys / 2;

// The packed columns of a Delta or a snapshot page.
struct RecordColumns {
  KeyColumn ids;
  Column<uint16_t> shards;
  Column<uint64_t> versions;
  Column<uint8_t> tiers;
  Column<uint32_t> lengths;
  Column<uint32_t> namespaces;
  Column<uint32_t> expiries;
  Column<uint8_t> causes;
  Column<uint64_t> mutations;
};

absl::StatusOr<RecordColumns> ParseColumns(const wire::Delta& d) {
  RecordColumns c;
  CISTERN_ASSIGN_OR_RETURN(c.ids, KeyColumn::Parse(d.ids()));
  const size_t n = c.ids.size();
  CISTERN_ASSIGN_OR_RETURN(c.shards, Column<uint16_t>::Parse(d.shards(), n, "shards", true, false));
  CISTERN_ASSIGN_OR_RETURN(c.versions,
                           Column<uint64_t>::Parse(d.versions(), n, "versions", false, false));
  CISTERN_ASSIGN_OR_RETURN(c.tiers,
                           Column<uint8_t>::Parse(d.tiers(), n, "tiers", true, false, kDram));
  CISTERN_ASSIGN_OR_RETURN(c.lengths,
                           Column<uint32_t>::Parse(d.lengths(), n, "lengths", false, false));
  CISTERN_ASSIGN_OR_RETURN(c.namespaces,
                           Column<uint32_t>::Parse(d.namespaces(), n, "namespaces", n == 0, true));
  CISTERN_ASSIGN_OR_RETURN(c.expiries,
                           Column<uint32_t>::Parse(d.expiries(), n, "expiries", true, false));
  CISTERN_ASSIGN_OR_RETURN(c.causes, Column<uint8_t>::Parse(d.causes(), n, "causes", true, true));
  CISTERN_ASSIGN_OR_RETURN(c.mutations,
                           Column<uint64_t>::Parse(d.mutations(), n, "mutations", true, false));
  return c;
}

// Asks from memory for what applying some records from `begin` on will look at.
void FetchRecords(const PoolState& pool, const RecordColumns& c, size_t begin, size_t end) {
  KeyId ids[Index::kFetchKeys];
  Shard shards[Index::kFetchKeys];
  const size_t n = std::min(end - begin, Index::kFetchKeys);
  for (size_t i = 0; i < n; ++i) {
    ids[i] = c.ids[begin + i];
    shards[i] = Shard(c.shards[begin + i]);
    pool.evicted.Fetch(ids[i], shards[i]);
  }
  pool.index.FetchBatch(n, ids, shards);
}

absl::Status Bad(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("session: ", AbslView(what)));
}

void FillFromHello(Store& store, const wire::SessionHello& hello) {
  store.incarnation = hello.incarnation();
  store.name = hello.name();
  store.software_version = hello.software_version();
  store.endpoints.assign(hello.endpoints().begin(), hello.endpoints().end());
  store.segments.assign(hello.segments().begin(), hello.segments().end());
  store.heartbeat.Clear();
  for (TierState& tier : store.tiers) tier.capacity_bytes = tier.header_count = 0;
  for (const wire::SegmentInfo& segment : store.segments) {
    if (segment.tier() != kDram && segment.tier() != kSsd && segment.tier() != kCold) continue;
    TierState& tier = store.tiers[TierNumber(static_cast<TierMask>(segment.tier()))];
    tier.capacity_bytes += segment.allocatable_bytes();
    tier.header_count += segment.header_count();
  }
}

}  // namespace

absl::Status SessionCore::AddNamespaces(
    PoolState& pool, const google::protobuf::RepeatedPtrField<wire::NamespaceInfo>& infos) {
  for (const wire::NamespaceInfo& info : infos) {
    if (namespaces_.size() >= kMaxNamespaces) return Bad("too many namespaces");
    CISTERN_ASSIGN_OR_RETURN(const NamespaceIndex index, pool.namespaces.Report(info));
    namespace_numbers_.try_emplace(index, static_cast<uint32_t>(namespaces_.size()));
    namespaces_.push_back(index);
    // Removed while this store was away, or before a record of it had come.
    if (pool.namespaces.at(index).removed) {
      QueueDropNamespace(pool, pool.namespaces.at(index).id);
    }
  }
  return absl::OkStatus();
}

absl::Status SessionCore::FlipMark(Store& store, bool new_process) {
  // The index cannot tell two snapshots' marks apart: the last one's sweep comes first.
  if (!store.parity_clean || store.sweeping) {
    return absl::UnavailableError("the sweep after this store's last snapshot still runs");
  }
  store.parity = !store.parity;
  store.parity_clean = store.chunk_count() == 0;
  store.hide_unmarked = (new_process || store.distrusted) && !store.parity_clean;
  store.resumable = false;
  return absl::OkStatus();
}

absl::Status SessionCore::AcceptHello(PoolState& pool, Store& store,
                                      const wire::SessionHello& hello, MonoTime now,
                                      wire::SessionHelloAck* ack) {
  if (hello.log_first() > hello.log_next()) return Bad("log_first is above log_next");
  // Of its last session, where it ended just now: a chunk must not look as if this one were told.
  if (HasKept(pool, store.index)) {
    return absl::UnavailableError("the victims of this store's last session are still taken back");
  }
  CISTERN_RETURN_IF_ERROR(AddNamespaces(pool, hello.namespaces()));
  const bool same = store.resumable && store.incarnation == hello.incarnation();
  const bool resume =
      same && hello.log_first() <= store.next_seq && store.next_seq <= hello.log_next();
  if (!resume) {
    CISTERN_RETURN_IF_ERROR(
        FlipMark(store, /*new_process=*/store.incarnation != hello.incarnation()));
    phase_ = Phase::kAwaitSnapshot;
  }
  FillFromHello(store, hello);
  store.forgotten = false;
  ++pool.counters.sessions_opened;
  store.session = id_;
  store.last_heard = now;
  store.state = phase_ == Phase::kStreaming ? StoreState::kServing : StoreState::kSyncing;
  pool.stores.Publish(store);
  pool.stores.TouchDirectory();
  next_seq_ = acked_seq_ = store.next_seq;

  ack->set_epoch(pool.epoch.value);
  ack->set_store_index(store.index.value);
  ack->set_snapshot(!resume);
  if (resume) ack->set_resume_seq(next_seq_);
  ack->set_delta_flush_us(
      static_cast<uint32_t>(absl::ToInt64Microseconds(pool.options.delta_flush)));
  ack->set_heartbeat_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(pool.options.heartbeat)));
  ack->set_map_version(pool.map.version());
  ack->set_default_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(pool.options.lease)));
  ack->set_pool_birth_unix_ms(pool.options.pool_birth_unix_ms);
  return absl::OkStatus();
}

absl::Status SessionCore::ApplySlice(PoolState& pool, Store& store, const wire::Delta& delta,
                                     size_t begin, size_t end, bool snapshot, MonoTime now) {
  CISTERN_ASSIGN_OR_RETURN(const RecordColumns c, ParseColumns(delta));
  for (size_t i = begin; i < end; ++i) {
    if ((i - begin) % Index::kFetchKeys == 0) FetchRecords(pool, c, i, end);
    const uint64_t seq = delta.seq_first() + i;
    if (!snapshot && seq < next_seq_) continue;
    Record r;
    r.id = c.ids[i];
    r.shard = Shard(c.shards[i]);
    r.version = Version(c.versions[i]);
    r.tiers = c.tiers[i];
    r.length = c.lengths[i];
    r.expiry_unix_s = c.expiries[i];
    r.mutation = c.mutations[i];
    r.cause =
        wire::Cause_IsValid(c.causes[i]) ? static_cast<wire::Cause>(c.causes[i]) : wire::CAUSE_NONE;
    const uint32_t ns = c.namespaces[i];
    if (ns >= namespaces_.size()) return Bad("a record of a namespace that was not announced");
    if (r.shard.value > Shard::kMax || r.version.value > Version::kMax || r.tiers > kAllTiers ||
        r.length > kMaxChunkBytes || (r.tiers != 0 && r.length == 0) ||
        (snapshot && r.tiers == 0)) {
      return Bad("a record with values out of bounds");
    }
    r.ns = namespaces_[ns];
    ApplyRecord(pool, store, r, now);
    if (!snapshot && r.tiers != 0 && r.cause == wire::CAUSE_PUT) {
      NamespaceCounters& counters = pool.namespaces.counters(r.ns);
      ++counters.put_chunks;
      counters.put_bytes += r.length;
    }
    if (snapshot) {
      ++snapshot_count_;
      for (size_t b = 0; b < KeyId::kBytes; ++b) snapshot_xor_.bytes[b] ^= r.id.bytes[b];
    } else {
      next_seq_ = seq + 1;
    }
  }
  return absl::OkStatus();
}

absl::Status SessionCore::OnDelta(PoolState& pool, Store& store, const wire::Delta& delta,
                                  size_t* next, MonoTime now) {
  const size_t n = delta.ids().size() / KeyId::kBytes;
  if (n > kMaxDeltaRecords) return Bad("a delta with too many records");
  store.last_heard = now;
  if (*next == 0) {
    const bool fresh = n == 0 || delta.seq_first() + n > next_seq_;
    if (fresh || phase_ == Phase::kAwaitSnapshot) {
      CISTERN_RETURN_IF_ERROR(AddNamespaces(pool, delta.new_namespaces()));
    }
  }
  // Before its snapshot begins, everything a store says will be contained in it.
  if (phase_ == Phase::kAwaitSnapshot || n == 0) {
    *next = n;
    return absl::OkStatus();
  }
  if (*next == 0 && delta.seq_first() > next_seq_) {
    return absl::AbortedError(absl::StrCat("session: record ", next_seq_, " is missing, got ",
                                           delta.seq_first(), ": reconnect and resume"));
  }
  const size_t end = std::min<size_t>(n, *next + kSliceRecords);
  CISTERN_RETURN_IF_ERROR(ApplySlice(pool, store, delta, *next, end, /*snapshot=*/false, now));
  *next = end;
  store.next_seq = next_seq_;
  QueueAckIfDue(false);
  return absl::OkStatus();
}

absl::Status SessionCore::OnSnapshotBegin(PoolState& pool, Store& store,
                                          const wire::SnapshotBegin& begin) {
  if (phase_ == Phase::kSnapshot) return Bad("a snapshot within a snapshot");
  if (phase_ == Phase::kStreaming) {
    // The store's log has overflowed; it goes on serving what it had.
    CISTERN_RETURN_IF_ERROR(FlipMark(store, /*new_process=*/false));
    pool.stores.Publish(store);
  }
  phase_ = Phase::kSnapshot;
  ++pool.counters.snapshots_begun;
  snapshot_id_ = begin.snapshot_id();
  snapshot_count_ = 0;
  snapshot_xor_ = KeyId();
  next_seq_ = acked_seq_ = begin.seq();
  store.next_seq = next_seq_;
  return absl::OkStatus();
}

absl::Status SessionCore::OnSnapshotPage(PoolState& pool, Store& store,
                                         const wire::SnapshotPage& page, size_t* next,
                                         MonoTime now) {
  const size_t n = page.records().ids().size() / KeyId::kBytes;
  if (phase_ != Phase::kSnapshot || page.snapshot_id() != snapshot_id_) {
    return Bad("a page of no running snapshot");
  }
  if (n > kMaxPageRecords) return Bad("a page with too many records");
  store.last_heard = now;
  if (*next == 0) {
    CISTERN_RETURN_IF_ERROR(AddNamespaces(pool, page.records().new_namespaces()));
  }
  const size_t end = std::min<size_t>(n, *next + kSliceRecords);
  CISTERN_RETURN_IF_ERROR(
      ApplySlice(pool, store, page.records(), *next, end, /*snapshot=*/true, now));
  *next = end;
  return absl::OkStatus();
}

absl::Status SessionCore::OnSnapshotEnd(PoolState& pool, Store& store,
                                        const wire::SnapshotEnd& end) {
  if (phase_ != Phase::kSnapshot || end.snapshot_id() != snapshot_id_) {
    return Bad("the end of no running snapshot");
  }
  if (end.count() != snapshot_count_ || end.xor_of_ids() != snapshot_xor_.view()) {
    return absl::DataLossError(absl::StrCat("session: the snapshot has ", snapshot_count_,
                                            " records, its end says ", end.count(),
                                            " or other ids: send another"));
  }
  phase_ = Phase::kStreaming;
  ++pool.counters.snapshots_completed;
  store.resumable = true;
  store.distrusted = false;
  if (!store.parity_clean) {
    store.sweeping = true;
    pool.sweeps.push_back({SweepJob::Kind::kRemoveUnmarked, store.index, 0});
  }
  if (store.state == StoreState::kSyncing) {
    store.state = StoreState::kServing;
    pool.stores.Publish(store);
  }
  return absl::OkStatus();
}

absl::Status SessionCore::OnHeartbeat(Store& store, const wire::Heartbeat& heartbeat,
                                      MonoTime now) {
  store.last_heard = now;
  store.heartbeat = heartbeat;
  if (!heartbeat.segments().empty()) {
    store.segments.assign(heartbeat.segments().begin(), heartbeat.segments().end());
  }
  for (const wire::TierUsage& usage : heartbeat.tiers()) {
    if (usage.tier() != kDram && usage.tier() != kSsd && usage.tier() != kCold) continue;
    TierState& tier = store.tiers[TierNumber(static_cast<TierMask>(usage.tier()))];
    tier.capacity_bytes = usage.capacity_bytes();
    tier.header_count = usage.header_count();
    tier.overhead_bytes =
        usage.committed_bytes() > tier.bytes ? usage.committed_bytes() - tier.bytes : 0;
  }
  const bool stuck = phase_ == Phase::kStreaming && next_seq_ < acked_command_seq_ &&
                     next_seq_ == seq_at_heartbeat_;
  if (stuck) {
    return absl::AbortedError(absl::StrCat("session: record ", next_seq_, " is missing, ",
                                           acked_command_seq_, " was announced a heartbeat ago"));
  }
  seq_at_heartbeat_ = next_seq_;
  acked_command_ = heartbeat.acked_command();
  acked_command_seq_ = heartbeat.record_seq();
  return absl::OkStatus();
}

// Its record has come.
bool SessionCore::Settled(PoolState& pool, const Store& store, const Victim& victim) {
  if (!pool.index.InUse(victim.entry)) return true;
  const ReplicaSlot* slot = pool.index.FindReplica(victim.entry, store.index);
  return slot == nullptr || slot->version() != victim.version ||
         (slot->evicting() & victim.tiers) == 0;
}

bool SessionCore::SettleCommands(PoolState& pool, Store& store, MonoTime now) {
  const bool acked_is_applied = phase_ == Phase::kStreaming && next_seq_ >= acked_command_seq_;
  uint32_t looks = 0;
  while (!commands_.empty()) {
    EvictCommand& front = commands_.front();
    const bool carried_out = acked_is_applied && front.number <= acked_command_;
    while (front.settled < front.victims.size()) {
      if (looks++ == kSliceKeys) return false;
      if (looks % Index::kFetchKeys == 1) {
        const size_t end = std::min(front.victims.size(), front.settled + Index::kFetchKeys);
        for (size_t i = front.settled; i < end; ++i) pool.index.Fetch(front.victims[i].entry);
      }
      const Victim& victim = front.victims[front.settled];
      if (carried_out) {
        RestoreVictim(pool, store, victim, now);
      } else if (!Settled(pool, store, victim)) {
        return true;
      }
      ++front.settled;
    }
    open_victims_ -= front.victims.size();
    commands_.pop_front();
  }
  return true;
}

void SessionCore::OnClosed(PoolState& pool, Store& store, MonoTime now) {
  if (!commands_.empty()) {
    pool.kept.push_back({store.index, std::exchange(commands_, std::deque<EvictCommand>())});
    (void)RestoreKept(pool, now);  // most have few, and are done with here
  }
  open_victims_ = 0;
  queue_.clear();
  // What it was still to drop it must not come back with.
  if (!stale_.empty() || last_stale_command_ > acked_command_) {
    Distrust(store, pool.MutationsEnd());
  }
  stale_.clear();
  ++pool.counters.sessions_closed;
  pool.removals.StoreLost(store.index);
  store.session = SessionId(0);
  store.state = StoreState::kDead;
  store.dead_since = now;
  if (phase_ != Phase::kStreaming && !store.parity_clean) {
    // What this process has not shown stays hidden in its next session too.
    if (store.hide_unmarked) store.distrusted = true;
    store.sweeping = true;
    pool.sweeps.push_back({SweepJob::Kind::kAlignParity, store.index, 0});
  }
  pool.stores.Publish(store);
  pool.stores.TouchDirectory();
}

wire::MasterMessage& SessionCore::Queue() { return queue_.emplace_back(); }

void SessionCore::QueueEvict(PoolState& pool, const std::vector<Victim>& victims, TierMask tiers,
                             wire::Cause cause) {
  for (size_t begin = 0; begin < victims.size(); begin += kMaxVictims) {
    const size_t n = std::min<size_t>(kMaxVictims, victims.size() - begin);
    wire::Evict& evict = *Queue().mutable_evict();
    evict.set_command(next_command_);
    evict.set_epoch(pool.epoch.value);
    evict.set_tier(tiers);
    evict.set_cause(cause);
    std::string& ids = *evict.mutable_ids();
    ids.reserve(n * KeyId::kBytes);
    ColumnWriter<uint16_t> shards(evict.mutable_shards(), n);
    ColumnWriter<uint64_t> versions(evict.mutable_versions(), n);
    ColumnWriter<uint32_t> namespaces(evict.mutable_namespaces(), n);
    for (size_t i = 0; i < n; ++i) {
      const Victim& victim = victims[begin + i];
      const IndexEntry& entry = pool.index.at(victim.entry);
      ids.append(entry.id.view());
      shards.Set(i, entry.shard().value);
      versions.Set(i, victim.version.value);
      // Every chunk of the store was reported under a number of this or an earlier session.
      auto it = namespace_numbers_.find(entry.ns());
      namespaces.Set(i, it == namespace_numbers_.end() ? 0xFFFFFFFF : it->second);
    }
    const auto first = victims.begin() + static_cast<std::ptrdiff_t>(begin);
    commands_.push_back({next_command_, {first, first + static_cast<std::ptrdiff_t>(n)}});
    open_victims_ += n;
    ++next_command_;
  }
}

void SessionCore::QueueDropNamespace(PoolState& pool, const NamespaceId& ns) {
  if (ended_) return;
  wire::DropNamespace& drop = *Queue().mutable_drop_namespace();
  drop.set_namespace_id(ns.bytes.data(), ns.bytes.size());
  drop.set_epoch(pool.epoch.value);
  drop.set_command(next_command_++);
}

uint64_t SessionCore::QueueFence() {
  const uint64_t command = next_command_++;
  Queue().mutable_fence()->set_command(command);
  return command;
}

absl::Status SessionCore::OnFenceDone(const wire::FenceDone& done) {
  if (phase_ != Phase::kStreaming || next_seq_ < done.record_seq()) {
    return absl::AbortedError(absl::StrCat("session: record ", next_seq_, " is missing, ",
                                           done.record_seq(), " was announced"));
  }
  if (done.command() >= next_command_) return Bad("the answer to a fence that was not sent");
  passed_fence_ = std::max<uint64_t>(passed_fence_, done.command());
  return absl::OkStatus();
}

void SessionCore::QueueStale(PoolState& pool) {
  for (size_t begin = 0; begin < stale_.size(); begin += kMaxVictims) {
    const size_t n = std::min<size_t>(kMaxVictims, stale_.size() - begin);
    wire::Evict& evict = *Queue().mutable_evict();
    evict.set_command(next_command_);
    evict.set_epoch(pool.epoch.value);
    evict.set_tier(kAllTiers);
    evict.set_cause(wire::CAUSE_REPLACED);
    ColumnWriter<KeyId> ids(evict.mutable_ids(), n);
    ColumnWriter<uint16_t> shards(evict.mutable_shards(), n);
    ColumnWriter<uint64_t> versions(evict.mutable_versions(), n);
    for (size_t i = 0; i < n; ++i) {
      ids.Set(i, stale_[begin + i].name.id);
      shards.Set(i, stale_[begin + i].name.shard.value);
      versions.Set(i, stale_[begin + i].version.value);
    }
    commands_.push_back({next_command_, {}});
    last_stale_command_ = next_command_++;
  }
  stale_.clear();
}

void SessionCore::QueueEpochChanged(Epoch epoch) {
  if (ended_) return;
  Queue().mutable_epoch_changed()->set_epoch(epoch.value);
}

void SessionCore::QueueSegmentCommand(const PoolState& pool, const wire::SegmentCommand& command) {
  wire::SegmentCommand& queued = *Queue().mutable_segment_command();
  queued = command;
  queued.set_epoch(pool.epoch.value);
}

void SessionCore::QueueError(const absl::Status& status) {
  wire::ErrorReply& error = *Queue().mutable_error();
  error.set_code(static_cast<uint32_t>(status.code()));
  error.set_message(std::string(status.message()));
  ended_ = true;
}

void SessionCore::QueueAckIfDue(bool now) {
  if (next_seq_ == acked_seq_ || phase_ == Phase::kAwaitSnapshot) return;
  if (ended_ || (!now && next_seq_ - acked_seq_ < kAckEvery)) return;
  // One that was not sent yet is brought up to date: a stream that stalls gathers no more of them.
  const bool again = !queue_.empty() && queue_.back().has_ack();
  (again ? queue_.back() : Queue()).mutable_ack()->set_seq(next_seq_);
  acked_seq_ = next_seq_;
}

void SessionCore::TakeOutput(PoolState& pool, size_t max, std::vector<wire::MasterMessage>* out) {
  if (!stale_.empty() && !ended_) QueueStale(pool);
  while (max-- > 0 && !queue_.empty()) {
    out->push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

}  // namespace cistern::master
