#include "master/scripted_store_grpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/columns.h"
#include "base/status.h"
#include "transport/handshake.h"

namespace cistern::master {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

absl::Status FromReply(const wire::ErrorReply& reply) {
  return absl::Status(static_cast<absl::StatusCode>(reply.code()), reply.message());
}

}  // namespace

ScriptedStore::ScriptedStore(Options options)
    : options_(std::move(options)), next_version_(options_.incarnation << 20) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  channel_ = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", options_.grpc_port),
                                       grpc::InsecureChannelCredentials(), arguments);
  stub_ = wire::StoreSession::NewStub(channel_);
}

ScriptedStore::~ScriptedStore() { Disconnect(); }

void ScriptedStore::Disconnect() {
  if (context_ == nullptr) return;
  context_->TryCancel();
  if (reader_.joinable()) reader_.join();
  stream_->Finish();
  stream_ = nullptr;
  context_ = nullptr;
}

absl::Status ScriptedStore::Connect() {
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_deadline(absl::ToChronoTime(Clock::Real().Wall() + kPatience));
  stream_ = stub_->Session(context_.get());
  if (absl::Status s = Handshake(); !s.ok()) {
    Disconnect();
    return s;
  }
  {
    MutexLock lock(mutex_);
    ended_ = false;
    epoch_ = ack_.epoch();
  }
  if (ack_.snapshot()) SendSnapshot();  // before any command is answered
  reader_ = std::thread([this] { ReadLoop(); });
  MutexLock lock(mutex_);
  SendHeartbeatLocked();
  return absl::OkStatus();
}

absl::Status ScriptedStore::ReadAnswer(wire::MasterMessage* message) {
  if (!stream_->Read(message)) return absl::UnavailableError("the stream ended");
  if (message->has_error()) return FromReply(message->error());
  return absl::OkStatus();
}

absl::Status ScriptedStore::Handshake() {
  transport::LocalIdentity identity;
  identity.kind = wire::PEER_STORE;
  identity.token = options_.token;
  identity.incarnation = options_.incarnation;
  identity.boot_id = transport::ReadBootId();
  transport::ClientHandshake handshake(identity, "", false);
  wire::StoreMessage out;
  wire::MasterMessage in;
  *out.mutable_hello_auth() = handshake.MakeHello();
  stream_->Write(out);
  CISTERN_RETURN_IF_ERROR(ReadAnswer(&in));
  CISTERN_ASSIGN_OR_RETURN(*out.mutable_auth(), handshake.OnHelloAck(in.auth_ack()));
  stream_->Write(out);
  *out.mutable_hello() = Hello();
  stream_->Write(out);
  CISTERN_RETURN_IF_ERROR(ReadAnswer(&in));
  if (!in.has_hello_ack()) return absl::InternalError("hello_ack must come first");
  ack_ = in.hello_ack();
  return absl::OkStatus();
}

wire::SessionHello ScriptedStore::Hello() const {
  wire::SessionHello hello;
  hello.set_pool_id(std::string(options_.pool_id.view()));
  hello.set_store_id(std::string(options_.store_id.view()));
  hello.set_incarnation(options_.incarnation);
  hello.set_highest_epoch(options_.highest_epoch);
  hello.set_in_session_elsewhere(options_.in_session_elsewhere);
  hello.set_name(options_.name);
  hello.set_software_version("test");
  wire::SegmentInfo* segment = hello.add_segments();
  segment->set_segment_id(std::string(16, 's'));
  segment->set_tier(wire::TIER_DRAM);
  segment->set_bytes(options_.capacity_bytes);
  segment->set_allocatable_bytes(options_.capacity_bytes);
  segment->set_header_count(1 << 20);
  wire::Endpoint* endpoint = hello.add_endpoints();
  endpoint->set_host("127.0.0.1");
  endpoint->set_port(1);
  for (const wire::NamespaceInfo& info : options_.namespaces) *hello.add_namespaces() = info;
  MutexLock lock(mutex_);
  hello.set_log_first(0);
  hello.set_log_next(next_seq_);
  return hello;
}

void ScriptedStore::SendSnapshot() {
  MutexLock lock(mutex_);
  wire::StoreMessage out;
  out.mutable_snapshot_begin()->set_snapshot_id(1);
  out.mutable_snapshot_begin()->set_seq(next_seq_);
  stream_->Write(out);
  KeyId sum;
  wire::SnapshotPage* page = out.mutable_snapshot_page();
  page->set_snapshot_id(1);
  wire::Delta* records = page->mutable_records();
  const size_t n = held_.size();
  ColumnWriter<uint64_t> versions(records->mutable_versions(), n);
  ColumnWriter<uint32_t> lengths(records->mutable_lengths(), n);
  ColumnWriter<uint32_t> namespaces(records->mutable_namespaces(), n);
  size_t i = 0;
  for (const auto& [id, held] : held_) {
    records->mutable_ids()->append(id.view());
    versions.Set(i, held.version);
    lengths.Set(i, held.length);
    namespaces.Set(i, held.ns);
    for (size_t b = 0; b < KeyId::kBytes; ++b) sum.bytes[b] ^= id.bytes[b];
    ++i;
  }
  if (n > 0) stream_->Write(out);
  out.mutable_snapshot_end()->set_snapshot_id(1);
  out.mutable_snapshot_end()->set_count(n);
  out.mutable_snapshot_end()->set_xor_of_ids(std::string(sum.view()));
  stream_->Write(out);
}

void ScriptedStore::Commit(uint32_t namespace_index, const std::vector<KeyId>& ids,
                           uint32_t length) {
  constexpr size_t kRecords = 4096;
  MutexLock lock(mutex_);
  for (size_t end = ids.size(); end > 0;) {
    const size_t n = std::min(end, kRecords);
    wire::StoreMessage out;
    wire::Delta* delta = out.mutable_delta();
    delta->set_seq_first(next_seq_);
    ColumnWriter<uint64_t> versions(delta->mutable_versions(), n);
    for (size_t i = 0; i < n; ++i) {
      const KeyId& id = ids[--end];
      delta->mutable_ids()->append(id.view());
      versions.Set(i, next_version_);
      held_[id] = {next_version_++, length, namespace_index};
      used_bytes_ += RoundUp(length, Extent::kAlignment);
    }
    ColumnWriter<uint32_t> lengths(delta->mutable_lengths(), n);
    for (size_t i = 0; i < n; ++i) lengths.Set(i, length);
    ColumnWriter<uint32_t>(delta->mutable_namespaces(), 1).Set(0, namespace_index);
    ColumnWriter<uint8_t>(delta->mutable_causes(), 1).Set(0, wire::CAUSE_PUT);
    next_seq_ += n;
    stream_->Write(out);
  }
  SendHeartbeatLocked();
}

void ScriptedStore::SendRaw(const wire::StoreMessage& message) {
  MutexLock lock(mutex_);
  stream_->Write(message);
}

void ScriptedStore::SendHeartbeatLocked() {
  wire::StoreMessage out;
  wire::Heartbeat* heartbeat = out.mutable_heartbeat();
  wire::TierUsage* tier = heartbeat->add_tiers();
  tier->set_tier(wire::TIER_DRAM);
  tier->set_capacity_bytes(options_.capacity_bytes);
  tier->set_used_bytes(used_bytes_);
  tier->set_committed_bytes(used_bytes_);
  tier->set_chunk_count(held_.size());
  tier->set_header_count(1 << 20);
  tier->set_headers_used(held_.size());
  heartbeat->set_record_seq(next_seq_);
  heartbeat->set_acked_command(acked_command_);
  stream_->Write(out);
}

void ScriptedStore::ReadLoop() {
  wire::MasterMessage message;
  while (stream_->Read(&message)) {
    if (message.has_evict()) {
      OnEvict(message.evict());
      continue;
    }
    MutexLock lock(mutex_);
    if (message.has_ack()) acked_ = message.ack().seq();
    if (message.has_fence()) {
      wire::StoreMessage out;
      out.mutable_fence_done()->set_command(message.fence().command());
      out.mutable_fence_done()->set_record_seq(next_seq_);
      stream_->Write(out);
    }
    if (message.has_epoch_changed()) epoch_ = message.epoch_changed().epoch();
    if (message.has_segment_command()) segment_commands_.push_back(message.segment_command());
    if (message.has_error()) error_ = FromReply(message.error());
  }
  MutexLock lock(mutex_);
  ended_ = true;
}

void ScriptedStore::OnEvict(const wire::Evict& evict) {
  MutexLock lock(mutex_);
  ++evict_commands_;
  if (!options_.obeys) return;
  const size_t n = evict.ids().size() / KeyId::kBytes;
  const auto versions = Column<uint64_t>::Parse(evict.versions(), n, "versions", false, false);
  if (!versions.ok()) return;
  wire::StoreMessage out;
  wire::Delta* delta = out.mutable_delta();
  delta->set_seq_first(next_seq_);
  for (size_t i = 0; i < n; ++i) {
    const KeyId id = KeyId::FromBytes(evict.ids().data() + i * KeyId::kBytes);
    const auto it = held_.find(id);
    if (it == held_.end() || it->second.version != (*versions)[i]) continue;
    delta->mutable_ids()->append(id.view());
    const uint64_t version = it->second.version;
    const uint32_t length = it->second.length;
    const uint32_t ns = it->second.ns;
    delta->mutable_versions()->append(reinterpret_cast<const char*>(&version), sizeof(version));
    delta->mutable_lengths()->append(reinterpret_cast<const char*>(&length), sizeof(length));
    delta->mutable_namespaces()->append(reinterpret_cast<const char*>(&ns), sizeof(ns));
    delta->mutable_tiers()->push_back('\0');
    delta->mutable_causes()->push_back(static_cast<char>(evict.cause()));
    used_bytes_ -= RoundUp(length, Extent::kAlignment);
    held_.erase(it);
  }
  next_seq_ += delta->ids().size() / KeyId::kBytes;
  acked_command_ = evict.command();
  if (!delta->ids().empty()) stream_->Write(out);
  SendHeartbeatLocked();
}

size_t ScriptedStore::chunk_count() const {
  MutexLock lock(mutex_);
  return held_.size();
}
uint64_t ScriptedStore::evict_commands() const {
  MutexLock lock(mutex_);
  return evict_commands_;
}
uint64_t ScriptedStore::acked() const {
  MutexLock lock(mutex_);
  return acked_;
}
std::vector<wire::SegmentCommand> ScriptedStore::segment_commands() const {
  MutexLock lock(mutex_);
  return segment_commands_;
}
uint64_t ScriptedStore::epoch_heard() const {
  MutexLock lock(mutex_);
  return epoch_;
}
bool ScriptedStore::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}
absl::Status ScriptedStore::error() const {
  MutexLock lock(mutex_);
  return error_;
}

}  // namespace cistern::master
