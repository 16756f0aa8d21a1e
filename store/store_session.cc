#include "store/store_session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"

namespace cistern::store {

StoreSession::StoreSession(const transport::LocalIdentity& identity, ChunkStore& chunks,
                           Options options)
    : identity_(identity), chunks_(chunks), options_(std::move(options)) {}

void StoreSession::OnConnected(MonoTime now) {
  state_ = State::kHelloAuth;
  handshake_.emplace(identity_, /*expected_peer_id=*/std::string(), /*small_lane=*/false);
  snapshot_.reset();
  delta_due_.reset();
  need_bytes_.reset();
  fence_.reset();
  segment_answers_.clear();
  heartbeat_due_ = now;
}

void StoreSession::OnClosed(MonoTime now) {
  if (state_ == State::kOpen) last_open_ = now;
  state_ = State::kClosed;
  snapshot_.reset();
}

absl::Status StoreSession::OnMessage(const wire::MasterMessage& message, MonoTime now) {
  switch (message.kind_case()) {
    case wire::MasterMessage::kError:
      return absl::Status(static_cast<absl::StatusCode>(message.error().code()),
                          message.error().message());
    case wire::MasterMessage::kAuthAck:
      return OnAuthAck(message.auth_ack());
    case wire::MasterMessage::kHelloAck:
      return OnHelloAck(message.hello_ack(), now);
    default:
      break;
  }
  if (state_ != State::kOpen) {
    return absl::InvalidArgumentError("the master sent a command before its hello");
  }
  last_open_ = now;
  switch (message.kind_case()) {
    case wire::MasterMessage::kAck:
      chunks_.log().Ack(message.ack().seq());
      return absl::OkStatus();
    case wire::MasterMessage::kEvict:
      return OnEvict(message.evict());
    case wire::MasterMessage::kEpochChanged:
      highest_epoch_ = std::max<uint64_t>(highest_epoch_, message.epoch_changed().epoch());
      return absl::OkStatus();
    case wire::MasterMessage::kDropNamespace:
      return OnDropNamespace(message.drop_namespace());
    case wire::MasterMessage::kFence:
      OnFence(message.fence(), now);
      return absl::OkStatus();
    case wire::MasterMessage::kSegmentCommand:
      OnSegmentCommand(message.segment_command());
      return absl::OkStatus();
    default:
      return absl::OkStatus();  // of a newer master: ignored, as unknown fields are
  }
}

absl::Status StoreSession::OnAuthAck(const wire::HelloAck& ack) {
  if (state_ != State::kAwaitAck) {
    return absl::InvalidArgumentError("the master proved itself out of turn");
  }
  CISTERN_ASSIGN_OR_RETURN(auth_, handshake_->OnHelloAck(ack));
  if (handshake_->peer().pool_id != identity_.pool_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("the master serves pool ", handshake_->peer().pool_id.ToHex(),
                     ", this store belongs to pool ", identity_.pool_id.ToHex(),
                     "; give the store another data_dir or master_address"));
  }
  state_ = State::kAuth;
  return absl::OkStatus();
}

absl::Status StoreSession::OnHelloAck(const wire::SessionHelloAck& ack, MonoTime now) {
  if (state_ != State::kAwaitHelloAck) {
    return absl::InvalidArgumentError("the master said hello out of turn");
  }
  if (ack.epoch() < highest_epoch_) {
    return absl::AbortedError(absl::StrCat("the master's epoch ", ack.epoch(), " is behind ",
                                           highest_epoch_, ", which this store has seen"));
  }
  highest_epoch_ = ack.epoch();
  // Bounded whatever a master asks for: never a busy loop, never a silent store.
  delta_flush_ = std::min(absl::Microseconds(ack.delta_flush_us()), absl::Seconds(1));
  heartbeat_ =
      std::clamp(absl::Milliseconds(ack.heartbeat_ms()), absl::Milliseconds(10), absl::Seconds(10));
  last_command_ = 0;
  const RecordLog::Range range = chunks_.log().range();
  if (ack.snapshot() || ack.resume_seq() < range.first || ack.resume_seq() > range.next) {
    StartSnapshot();
  } else {
    next_seq_ = ack.resume_seq();
  }
  state_ = State::kOpen;
  last_open_ = now;
  heartbeat_due_ = now;
  return absl::OkStatus();
}

void StoreSession::StartSnapshot() {
  // Records from here on travel as deltas beside the pages; older ones are contained in the pages.
  snapshot_.emplace();
  snapshot_->id = next_snapshot_id_++;
  snapshot_->seq = chunks_.log().range().next;
  next_seq_ = snapshot_->seq;
  chunks_.log().Ack(next_seq_);
}

absl::Status StoreSession::OnEvict(const wire::Evict& evict) {
  (void)CISTERN_FAULT("store.session.evict");
  if (evict.epoch() < highest_epoch_) return absl::OkStatus();  // of a master that was replaced
  CISTERN_ASSIGN_OR_RETURN(const KeyColumn ids, KeyColumn::Parse(evict.ids()));
  CISTERN_ASSIGN_OR_RETURN(const auto shards, Column<uint16_t>::Parse(evict.shards(), ids.size(),
                                                                      "shards", true, false));
  CISTERN_ASSIGN_OR_RETURN(
      const auto versions,
      Column<uint64_t>::Parse(evict.versions(), ids.size(), "versions", false, false));
  for (size_t i = 0; i < ids.size(); ++i) {
    chunks_.Evict(ChunkName{ids[i], Shard(shards[i])}, Version(versions[i]), evict.cause());
  }
  last_command_ = std::max<uint64_t>(last_command_, evict.command());
  return absl::OkStatus();
}

absl::Status StoreSession::OnDropNamespace(const wire::DropNamespace& drop) {
  if (drop.epoch() < highest_epoch_) return absl::OkStatus();
  CISTERN_ASSIGN_OR_RETURN(const NamespaceId id, NamespaceId::Parse(drop.namespace_id()));
  const uint64_t dropped = chunks_.DropNamespace(id);
  CISTERN_LOG(Info, "namespace ", id.ToHex(), " dropped with ", dropped, " chunks");
  last_command_ = std::max<uint64_t>(last_command_, drop.command());
  return absl::OkStatus();
}

void StoreSession::OnFence(const wire::Fence& fence, MonoTime now) {
  fence_ = OpenFence{fence.command(), chunks_.log().range().next};
  if (fence_->seq > next_seq_) delta_due_ = now;
}

void StoreSession::OnSegmentCommand(const wire::SegmentCommand& command) {
  const bool replaced = command.epoch() < highest_epoch_;
  if (!replaced && options_.segment_command) return options_.segment_command(command);
  if (segment_answers_.size() >= kMaxSegmentAnswers) return;
  wire::SegmentDone& done = segment_answers_.emplace_back();
  done.set_command(command.command());
  done.set_code(static_cast<uint32_t>(replaced ? absl::StatusCode::kAborted
                                               : absl::StatusCode::kUnimplemented));
  done.set_message(replaced ? "the command is of a master that was replaced"
                            : "this store's segments cannot be changed while it runs");
}

void StoreSession::CollectSegmentAnswers(MonoTime now) {
  while (options_.take_segment_done && segment_answers_.size() < kMaxSegmentAnswers) {
    std::optional<wire::SegmentDone> done = options_.take_segment_done();
    if (!done.has_value()) return;
    segment_answers_.push_back(*std::move(done));
    heartbeat_due_ = now;
  }
}

void StoreSession::NeedBytes(uint64_t bytes, uint64_t extent_bytes, MonoTime now) {
  if (state_ != State::kOpen || now < need_bytes_allowed_) return;
  need_bytes_allowed_ = now + kNeedBytesInterval;
  need_bytes_.emplace();
  need_bytes_->set_tier(wire::TIER_DRAM);
  need_bytes_->set_bytes(bytes);
  need_bytes_->set_extent_bytes(extent_bytes);
}

bool StoreSession::Next(MonoTime now, absl::Time wall, wire::StoreMessage* out) {
  out->Clear();
  switch (state_) {
    case State::kHelloAuth:
      *out->mutable_hello_auth() = handshake_->MakeHello();
      state_ = State::kAwaitAck;
      return true;
    case State::kAuth:
      *out->mutable_auth() = auth_;
      state_ = State::kHello;
      return true;
    case State::kHello:
      FillHello(out->mutable_hello());
      state_ = State::kAwaitHelloAck;
      return true;
    case State::kOpen:
      break;
    default:
      return false;
  }
  CollectSegmentAnswers(now);
  if (now >= heartbeat_due_) {
    FillHeartbeat(now, wall, out->mutable_heartbeat());
    heartbeat_due_ = now + heartbeat_;
    return true;
  }
  if (!segment_answers_.empty()) {
    *out->mutable_segment_done() = std::move(segment_answers_.front());
    segment_answers_.pop_front();
    return true;
  }
  if (need_bytes_.has_value()) {
    *out->mutable_need_bytes() = *std::exchange(need_bytes_, std::nullopt);
    return true;
  }
  if (fence_.has_value() && !snapshot_.has_value() && next_seq_ >= fence_->seq) {
    wire::FenceDone* done = out->mutable_fence_done();
    done->set_command(fence_->command);
    done->set_record_seq(fence_->seq);
    fence_.reset();
    return true;
  }
  if (snapshot_.has_value() && std::exchange(snapshot_->page_turn, !snapshot_->page_turn)) {
    if (NextSnapshotPart(out)) return true;
  }
  if (NextDelta(now, out)) return true;
  return snapshot_.has_value() && NextSnapshotPart(out);
}

bool StoreSession::NextDelta(MonoTime now, wire::StoreMessage* out) {
  RecordLog& log = chunks_.log();
  const uint64_t pending = log.range().next - next_seq_;
  if (pending == 0) {
    delta_due_.reset();
    return false;
  }
  if (!delta_due_.has_value()) delta_due_ = now + delta_flush_;
  if (pending < kMaxDeltaRecords && now < *delta_due_ && !fence_.has_value()) return false;

  (void)CISTERN_FAULT("store.session.delta");
  wire::Delta* delta = out->mutable_delta();
  delta->set_seq_first(next_seq_);
  const absl::StatusOr<size_t> taken = log.Take(next_seq_, kMaxDeltaRecords, delta);
  if (!taken.ok()) {
    CISTERN_LOG(Warning, "records were lost before the master had them; it gets a snapshot");
    out->Clear();
    StartSnapshot();
    return NextSnapshotPart(out);
  }
  NumberNamespaces(delta);
  next_seq_ += *taken;
  delta_due_.reset();
  return true;
}

// A record may only name a namespace that was told: in the hello, or at the latest beside it.
void StoreSession::NumberNamespaces(wire::Delta* delta) {
  std::string& column = *delta->mutable_namespaces();
  absl::flat_hash_map<uint32_t, uint32_t> numbers;
  for (size_t at = 0; at + sizeof(uint32_t) <= column.size(); at += sizeof(uint32_t)) {
    uint32_t index = 0;
    std::memcpy(&index, column.data() + at, sizeof(index));
    const auto [number, is_new] = numbers.try_emplace(index, 0);
    if (is_new) number->second = NumberOf(index, delta);
    std::memcpy(column.data() + at, &number->second, sizeof(uint32_t));
  }
}

uint32_t StoreSession::NumberOf(uint32_t index, wire::Delta* delta) {
  // A record that is not acknowledged keeps its namespace from giving the index away.
  const uint64_t serial = chunks_.NamespaceSerial(NamespaceIndex(index));
  const auto [told, is_new] = namespaces_told_.try_emplace(index);
  if (is_new || told->second.serial != serial) {
    ChunkStore::NamespaceEntry entry = chunks_.NamespaceAt(NamespaceIndex(index));
    *delta->add_new_namespaces() = std::move(entry.info);
    told->second = {entry.serial, namespaces_sent_++};
  }
  return told->second.number;
}

bool StoreSession::NextSnapshotPart(wire::StoreMessage* out) {
  SnapshotProgress& snapshot = *snapshot_;
  if (!snapshot.begun) {
    (void)CISTERN_FAULT("store.snapshot.begin");
    wire::SnapshotBegin* begin = out->mutable_snapshot_begin();
    begin->set_snapshot_id(snapshot.id);
    begin->set_seq(snapshot.seq);
    snapshot.begun = true;
    return true;
  }
  while (!snapshot.pages_done) {
    wire::SnapshotPage* page = out->mutable_snapshot_page();
    page->set_snapshot_id(snapshot.id);
    const std::optional<uint64_t> next = chunks_.ReadPage(snapshot.cursor, kMaxPageRecords, page);
    snapshot.pages_done = !next.has_value();
    snapshot.cursor = next.value_or(0);
    const std::string& ids = page->records().ids();
    for (size_t at = 0; at + KeyId::kBytes <= ids.size(); at += KeyId::kBytes) {
      for (size_t b = 0; b < KeyId::kBytes; ++b) {
        snapshot.xor_of_ids.bytes[b] ^= static_cast<uint8_t>(ids[at + b]);
      }
      ++snapshot.count;
    }
    if (!ids.empty()) {
      (void)CISTERN_FAULT("store.snapshot.page");
      NumberNamespaces(page->mutable_records());
      return true;
    }
    out->Clear();
  }
  (void)CISTERN_FAULT("store.snapshot.end");
  wire::SnapshotEnd* end = out->mutable_snapshot_end();
  end->set_snapshot_id(snapshot.id);
  end->set_count(snapshot.count);
  end->set_xor_of_ids(std::string(snapshot.xor_of_ids.view()));
  snapshot_.reset();
  ++snapshots_sent_;
  return true;
}

MonoTime StoreSession::NextWake(MonoTime now) const {
  if (state_ != State::kOpen) return MonoTime::Infinite();
  if (snapshot_.has_value() || need_bytes_.has_value() || fence_.has_value() ||
      !segment_answers_.empty()) {
    return now;
  }
  MonoTime wake = heartbeat_due_;
  if (delta_due_.has_value()) wake = std::min(wake, *delta_due_);
  return wake;
}

void StoreSession::FillHello(wire::SessionHello* hello) {
  (void)CISTERN_FAULT("store.session.hello");
  hello->set_pool_id(std::string(identity_.pool_id.view()));
  hello->set_store_id(std::string(chunks_.store_id().view()));
  hello->set_incarnation(identity_.incarnation);
  hello->set_highest_epoch(highest_epoch_);
  std::vector<wire::SegmentInfo> segments;
  chunks_.SegmentInfos(&segments);
  for (wire::SegmentInfo& segment : segments) *hello->add_segments() = std::move(segment);
  for (const wire::Endpoint& endpoint : endpoints_) *hello->add_endpoints() = endpoint;
  const RecordLog::Range range = chunks_.log().range();
  // Others are told with the first record that names them.
  namespaces_told_.clear();
  namespaces_sent_ = 0;
  for (ChunkStore::NamespaceEntry& entry : chunks_.NamespacesWithChunks()) {
    namespaces_told_[entry.index] = {entry.serial, namespaces_sent_++};
    *hello->add_namespaces() = std::move(entry.info);
  }
  hello->set_log_first(range.first);
  hello->set_log_next(range.next);
  hello->set_software_version(std::string(SoftwareVersion()));
  if (!options_.name.empty()) {
    hello->set_name(options_.name);
  } else if (!endpoints_.empty()) {
    hello->set_name(absl::StrCat(endpoints_[0].host(), ":", endpoints_[0].port()));
  }
}

void StoreSession::FillHeartbeat(MonoTime now, absl::Time wall, wire::Heartbeat* out) {
  chunks_.Usage(wall, out->add_tiers());
  std::vector<wire::SegmentInfo> segments;
  chunks_.SegmentInfos(&segments);
  for (wire::SegmentInfo& segment : segments) *out->add_segments() = std::move(segment);
  chunks_.FillCounters(out->mutable_counters());
  if (options_.add_counters) options_.add_counters(out->mutable_counters());
  out->set_record_seq(chunks_.log().range().next);
  out->set_uptime_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(now - options_.started_at)));
  out->set_acked_command(last_command_);
}

}  // namespace cistern::store
