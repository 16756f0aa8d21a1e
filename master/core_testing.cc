#include "master/core_testing.h"

#include <cstring>
#include <memory>

#include "base/columns.h"
#include "base/status.h"

namespace cistern::master {
namespace {

template <typename Call, typename Request, typename Reply>
void RunCall(MasterCore& core, const Request& request, Reply* reply, MonoTime now) {
  Call call(request, reply);
  CISTERN_CHECK(call.Prepare().ok());
  while (!call.Step(core, now)) {
  }
  CISTERN_CHECK(call.status().ok());
}

std::vector<KeyId> Ids(const std::vector<uint64_t>& numbers) {
  std::vector<KeyId> out;
  for (const uint64_t n : numbers) out.push_back(TestId(n));
  return out;
}

}  // namespace

std::vector<TestRecord> Puts(uint64_t first_id, uint64_t count, uint64_t first_version) {
  std::vector<TestRecord> out;
  for (uint64_t i = 0; i < count; ++i) {
    out.push_back({.id = first_id + i, .version = first_version + i});
  }
  return out;
}

TestRecord Gone(uint64_t id, uint64_t version, wire::Cause cause) {
  return {.id = id, .version = version, .tiers = 0, .cause = cause};
}

absl::Status MemoryStateStore::SaveNamespace(const wire::NamespaceInfo& info) {
  for (wire::NamespaceInfo& known : state.namespaces) {
    if (known.id() == info.id()) {
      known = info;
      return absl::OkStatus();
    }
  }
  state.namespaces.push_back(info);
  return absl::OkStatus();
}

absl::Status MemoryStateStore::RemoveNamespace(const NamespaceId& id) {
  std::erase_if(state.namespaces,
                [&id](const wire::NamespaceInfo& info) { return info.id() == id.view(); });
  return absl::OkStatus();
}

absl::Status MemoryStateStore::SaveEpoch(Epoch epoch) {
  state.epoch = epoch;
  return absl::OkStatus();
}

KeyId TestId(uint64_t n) {
  KeyId id;
  id.bytes.fill(0xAB);
  std::memcpy(id.bytes.data(), &n, sizeof(n));
  return id;
}

std::string PackIds(const std::vector<KeyId>& ids) {
  std::string out;
  out.reserve(ids.size() * KeyId::kBytes);
  for (const KeyId& id : ids) out.append(id.view());
  return out;
}

TestPool::TestPool(MasterOptions options) : options_(std::move(options)) {
  options_.random_bytes = [this](void* out, size_t n) {
    std::memset(out, 0, n);
    std::memcpy(out, &random_, std::min(n, sizeof(random_)));
    ++random_;
  };
  Start();
}

void TestPool::Start() {
  core_ = std::make_unique<MasterCore>(options_, state_);
  CISTERN_CHECK(core_->Start(now).ok());
  wire::OpenNamespaceRequest request;
  request.set_name("test");
  request.set_fingerprint("fp");
  wire::OpenNamespaceReply reply;
  CISTERN_CHECK(core_->OpenNamespace(request, &reply).ok());
  ns_ref_ = reply.ns_ref();
  ns_ = reply.info();
}

void TestPool::RestartMaster() { Start(); }

wire::SessionHello TestPool::Hello(int n, uint64_t capacity_bytes, uint64_t incarnation) const {
  wire::SessionHello hello;
  hello.set_pool_id(options_.pool_id.bytes.data(), options_.pool_id.bytes.size());
  StoreId id;
  id.bytes[0] = static_cast<uint8_t>(n + 1);
  hello.set_store_id(id.bytes.data(), id.bytes.size());
  hello.set_incarnation(incarnation);
  hello.set_log_first(1);
  hello.set_log_next(1'000'000);
  hello.set_name("store-" + std::to_string(n));
  *hello.add_namespaces() = ns_;
  wire::SegmentInfo& segment = *hello.add_segments();
  segment.set_tier(wire::TIER_DRAM);
  segment.set_allocatable_bytes(capacity_bytes);
  return hello;
}

SessionId TestPool::Connect(int n, uint64_t capacity_bytes, uint64_t incarnation) {
  auto opened = core_->OnHello(Hello(n, capacity_bytes, incarnation), now);
  CISTERN_CHECK(opened.ok());
  if (opened->ack.snapshot()) {
    wire::StoreMessage begin, end;
    begin.mutable_snapshot_begin()->set_snapshot_id(1);
    begin.mutable_snapshot_begin()->set_seq(1);
    end.mutable_snapshot_end()->set_snapshot_id(1);
    end.mutable_snapshot_end()->set_xor_of_ids(std::string(16, '\0'));
    CISTERN_CHECK(Send(opened->session, begin).ok());
    CISTERN_CHECK(Send(opened->session, end).ok());
  }
  return opened->session;
}

absl::Status TestPool::Send(SessionId session, const wire::StoreMessage& message) {
  SessionCall call(session, message);
  while (!call.Step(*core_, now)) {
  }
  return call.status();
}

void TestPool::FillRecords(const std::vector<TestRecord>& records, wire::Delta* out) {
  const size_t n = records.size();
  ColumnWriter<uint64_t> versions(out->mutable_versions(), n);
  ColumnWriter<uint8_t> tiers(out->mutable_tiers(), n);
  ColumnWriter<uint32_t> lengths(out->mutable_lengths(), n);
  ColumnWriter<uint8_t> causes(out->mutable_causes(), n);
  out->set_namespaces(std::string(4, '\0'));
  for (size_t i = 0; i < n; ++i) {
    out->mutable_ids()->append(TestId(records[i].id).view());
    versions.Set(i, records[i].version);
    tiers.Set(i, records[i].tiers);
    lengths.Set(i, records[i].length);
    causes.Set(i, static_cast<uint8_t>(records[i].cause));
  }
}

absl::Status TestPool::SendRecords(SessionId session, uint64_t seq,
                                   const std::vector<TestRecord>& records) {
  wire::StoreMessage message;
  message.mutable_delta()->set_seq_first(seq);
  FillRecords(records, message.mutable_delta());
  return Send(session, message);
}

absl::Status TestPool::SendHeartbeat(SessionId session, uint64_t capacity_bytes,
                                     uint64_t used_bytes, uint64_t record_seq,
                                     uint64_t acked_command) {
  wire::StoreMessage message;
  wire::Heartbeat& heartbeat = *message.mutable_heartbeat();
  wire::TierUsage& tier = *heartbeat.add_tiers();
  tier.set_tier(wire::TIER_DRAM);
  tier.set_capacity_bytes(capacity_bytes);
  tier.set_used_bytes(used_bytes);
  tier.set_committed_bytes(used_bytes);
  heartbeat.set_record_seq(record_seq);
  heartbeat.set_acked_command(acked_command);
  return Send(session, message);
}

std::vector<wire::MasterMessage> TestPool::Output(SessionId session) {
  std::vector<wire::MasterMessage> out;
  core_->TakeOutgoing(session, 1000, &out);
  return out;
}

std::vector<KeyId> TestPool::Evicted(SessionId session) {
  std::vector<KeyId> out;
  for (const wire::MasterMessage& message : Output(session)) {
    if (!message.has_evict()) continue;
    const KeyColumn ids = *KeyColumn::Parse(message.evict().ids());
    for (size_t i = 0; i < ids.size(); ++i) out.push_back(ids[i]);
  }
  return out;
}

wire::LookupReply TestPool::Lookup(const std::vector<uint64_t>& ids, uint32_t lease_ms) {
  wire::LookupRequest request;
  request.set_map_version(1);
  request.set_ns_ref(ns_ref_);
  request.set_ids(PackIds(Ids(ids)));
  request.set_lease_ms(lease_ms);
  wire::LookupReply reply;
  RunCall<LookupCall>(*core_, request, &reply, now);
  return reply;
}

wire::PlaceReply TestPool::Place(const std::vector<uint64_t>& ids, uint32_t length,
                                 uint64_t operation) {
  wire::PlaceRequest request;
  request.set_map_version(1);
  request.set_ns_ref(ns_ref_);
  request.set_ids(PackIds(Ids(ids)));
  request.set_lengths(&length, sizeof(length));
  OperationId id;
  const uint64_t number = operation == 0 ? next_operation_++ : operation;
  std::memcpy(id.bytes.data(), &number, sizeof(number));
  request.set_operation_id(id.bytes.data(), id.bytes.size());
  wire::PlaceReply reply;
  RunCall<PlaceCall>(*core_, request, &reply, now);
  return reply;
}

std::vector<bool> TestPool::Exists(const std::vector<uint64_t>& ids) {
  wire::ExistsRequest request;
  request.set_map_version(1);
  request.set_ns_ref(ns_ref_);
  request.set_ids(PackIds(Ids(ids)));
  wire::ExistsReply reply;
  RunCall<ExistsCall>(*core_, request, &reply, now);
  std::vector<bool> out;
  for (size_t i = 0; i < ids.size(); ++i) out.push_back(BitmapGet(reply.present(), i));
  return out;
}

bool TestPool::Release(const std::string& lease_id) {
  wire::ReleaseRequest request;
  request.set_lease_id(lease_id);
  wire::ReleaseReply reply;
  CISTERN_CHECK(core_->Release(request, &reply, now).ok());
  return reply.released();
}

StoreIndex TestPool::StoreAt(const std::string& column, size_t i) {
  StoreIndex store;
  std::memcpy(&store.value, column.data() + 2 * i, 2);
  return store;
}

}  // namespace cistern::master
