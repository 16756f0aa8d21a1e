#include "tests/simulation/sim_cluster.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "master/pool_state.h"

namespace cistern::simulation {
namespace {

constexpr char kNamespace[] = "simulation";
constexpr char kFingerprint[] = "model-1";

template <typename Call, typename Request, typename Reply>
void RunCall(master::MasterCore& core, const Request& request, Reply* reply, MonoTime now) {
  Call call(request, reply);
  const absl::Status prepared = call.Prepare();
  CISTERN_CHECK(prepared.ok());
  while (!call.Step(core, now)) {
  }
  CISTERN_CHECK(call.status().ok());
}

}  // namespace

SimCluster::SimCluster(const Options& options) : options_(options), random_(options.seed) {
  const NamespaceId id = DeriveNamespaceId("", kNamespace, kFingerprint);
  ns_.set_id(id.bytes.data(), id.bytes.size());
  ns_.set_name(kNamespace);
  ns_.set_fingerprint(kFingerprint);
  for (int i = 0; i < options.stores; ++i) {
    SimStore::Options store;
    store.id.bytes[0] = static_cast<uint8_t>(i + 1);
    store.name = absl::StrCat("store-", i);
    store.segment_bytes = options.pool_bytes / static_cast<uint64_t>(options.stores);
    store.log_records = options.log_records;
    store.ns = ns_;
    nodes_.emplace_back().store = std::make_unique<SimStore>(store);
  }
  StartMaster();
  TickLoop();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Connect(i);
    FlushLoop(i);
    HeartbeatLoop(i);
  }
}

void SimCluster::StartMaster() {
  master::MasterOptions master = options_.master;
  master.hash_seed = random_.Next();
  master.random_bytes = [this](void* out, size_t n) {
    for (size_t i = 0; i < n; ++i) static_cast<char*>(out)[i] = static_cast<char>(random_.Next());
  };
  core_ = std::make_unique<master::MasterCore>(master, state_);
  CISTERN_CHECK(core_->Start(events_.now()).ok());
  OpenNamespace();
}

void SimCluster::OpenNamespace() {
  wire::OpenNamespaceRequest request;
  request.set_name(kNamespace);
  request.set_fingerprint(kFingerprint);
  wire::OpenNamespaceReply reply;
  CISTERN_CHECK(core_->OpenNamespace(request, &reply).ok());
  ns_ref_ = reply.ns_ref();
}

MonoTime SimCluster::Arrival(MonoTime* last) {
  const double spread = absl::ToDoubleSeconds(options_.link_max - options_.link_min);
  const MonoTime at = events_.now() + options_.link_min + absl::Seconds(spread * random_.Unit());
  *last = std::max(*last, at);
  return *last;
}

void SimCluster::Connect(size_t i) {
  Node& node = nodes_[i];
  const uint64_t link = ++node.link;
  node.session = master::SessionId(0);
  node.streaming = false;
  node.last_up = node.last_down = events_.now();
  events_.At(Arrival(&node.last_up), [this, i, link] {
    Node& n = nodes_[i];
    if (n.link != link) return;
    auto opened = core_->OnHello(n.store->Hello(options_.master.pool_id), events_.now());
    if (!opened.ok()) return Reconnect(i);
    ++sessions_opened_;
    n.session = opened->session;
    n.store->SeeEpoch(opened->ack.epoch());
    n.store->NewSession();
    n.streaming = true;
    if (opened->ack.snapshot()) {
      const auto messages = n.store->MakeSnapshot(next_snapshot_++, options_.page_records);
      n.sent_seq = n.store->log_next();
      for (const wire::StoreMessage& message : messages) SendUp(i, message);
    } else {
      n.sent_seq = opened->ack.resume_seq();
    }
    Drain();
  });
}

void SimCluster::Reconnect(size_t i) {
  Node& node = nodes_[i];
  if (node.session.value != 0) core_->OnSessionClosed(node.session, events_.now());
  const uint64_t link = ++node.link;
  node.session = master::SessionId(0);
  node.streaming = false;
  events_.After(absl::Milliseconds(10 + static_cast<int64_t>(random_.Below(90))), [this, i, link] {
    if (nodes_[i].link == link) Connect(i);
  });
}

void SimCluster::SendUp(size_t i, wire::StoreMessage message) {
  Node& node = nodes_[i];
  // Lost are records, which the sequence shows. A stream never loses the answer to a fence alone.
  if (!message.has_fence_done() && std::exchange(node.lose_next, false)) return;
  const int copies = std::exchange(node.double_next, false) ? 2 : 1;
  auto shared = std::make_shared<const wire::StoreMessage>(std::move(message));
  for (int c = 0; c < copies; ++c) {
    events_.At(Arrival(&node.last_up),
               [this, i, link = node.link, shared] { DeliverUp(i, link, *shared); });
  }
}

void SimCluster::DeliverUp(size_t i, uint64_t link, const wire::StoreMessage& message) {
  Node& node = nodes_[i];
  if (node.link != link || node.session.value == 0) return;
  master::SessionCall call(node.session, message);
  while (!call.Step(*core_, events_.now())) {
  }
  if (!call.status().ok()) return Reconnect(i);
  Drain();
}

void SimCluster::Drain() {
  for (const master::SessionId session : core_->SessionsWithOutput()) {
    std::vector<wire::MasterMessage> out;
    core_->TakeOutgoing(session, 1000, &out);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      if (node.session != session) continue;
      for (wire::MasterMessage& message : out) {
        auto shared = std::make_shared<const wire::MasterMessage>(std::move(message));
        events_.At(Arrival(&node.last_down),
                   [this, i, link = node.link, shared] { DeliverDown(i, link, *shared); });
      }
    }
  }
}

void SimCluster::DeliverDown(size_t i, uint64_t link, const wire::MasterMessage& message) {
  Node& node = nodes_[i];
  if (node.link != link) return;
  if (message.has_evict()) node.store->Evict(message.evict());
  if (message.has_ack()) node.store->Ack(message.ack().seq());
  if (message.has_epoch_changed()) node.store->SeeEpoch(message.epoch_changed().epoch());
  if (message.has_fence()) {
    Flush(i);
    if (!node.streaming || node.link != link) return;
    wire::StoreMessage done;
    done.mutable_fence_done()->set_command(message.fence().command());
    done.mutable_fence_done()->set_record_seq(node.store->log_next());
    SendUp(i, std::move(done));
  }
  if (message.has_error()) Reconnect(i);
}

void SimCluster::FlushLoop(size_t i) {
  Flush(i);
  events_.After(options_.flush, [this, i] { FlushLoop(i); });
}

void SimCluster::Flush(size_t i) {
  Node& node = nodes_[i];
  while (node.streaming && node.sent_seq < node.store->log_next()) {
    wire::StoreMessage message;
    if (!node.store->FillDelta(node.sent_seq, 4096, message.mutable_delta())) {
      Reconnect(i);  // the log has overflowed
      break;
    }
    node.sent_seq += message.delta().ids().size() / KeyId::kBytes;
    SendUp(i, std::move(message));
  }
}

void SimCluster::HeartbeatLoop(size_t i) {
  if (nodes_[i].streaming) {
    wire::StoreMessage message;
    *message.mutable_heartbeat() = nodes_[i].store->MakeHeartbeat();
    SendUp(i, std::move(message));
  }
  events_.After(options_.heartbeat, [this, i] { HeartbeatLoop(i); });
}

void SimCluster::TickLoop() {
  core_->Tick(events_.now(), absl::FromUnixSeconds(1'700'000'000));
  while (core_->BackgroundStep(events_.now())) {
  }
  Drain();
  events_.After(options_.tick, [this] { TickLoop(); });
}

wire::LookupReply SimCluster::Lookup(const std::vector<KeyId>& ids) {
  wire::LookupRequest request;
  request.set_map_version(1);
  request.set_ns_ref(ns_ref_);
  request.set_ids(master::PackIds(ids));
  wire::LookupReply reply;
  RunCall<master::LookupCall>(*core_, request, &reply, events_.now());
  return reply;
}

wire::PlaceReply SimCluster::Place(const std::vector<KeyId>& ids) {
  wire::PlaceRequest request;
  request.set_map_version(1);
  request.set_ns_ref(ns_ref_);
  request.set_ids(master::PackIds(ids));
  const uint32_t length = options_.chunk_bytes;
  request.set_lengths(&length, sizeof(length));
  OperationId operation;
  std::memcpy(operation.bytes.data(), &next_operation_, sizeof(next_operation_));
  ++next_operation_;
  request.set_operation_id(operation.bytes.data(), operation.bytes.size());
  wire::PlaceReply reply;
  RunCall<master::PlaceCall>(*core_, request, &reply, events_.now());
  Drain();
  return reply;
}

void SimCluster::Release(const std::string& lease_id) {
  wire::ReleaseRequest request;
  request.set_lease_id(lease_id);
  wire::ReleaseReply reply;
  CISTERN_CHECK(core_->Release(request, &reply, events_.now()).ok());
}

wire::RemoveReply SimCluster::Remove(const std::vector<KeyId>& ids, bool force, bool all) {
  wire::RemoveRequest request;
  request.set_map_version(1);
  request.set_ns_ref(ns_ref_);
  request.set_ids(master::PackIds(ids));
  request.set_force(force);
  request.set_all(all);
  wire::RemoveReply reply;
  master::RemoveCall call(request, &reply);
  CISTERN_CHECK(call.Prepare().ok());
  while (!call.Step(*core_, events_.now())) {
    Drain();
    if (call.blocked()) Run(absl::Milliseconds(1));
  }
  Drain();
  bool in_time = false;
  for (int ms = 0; ms < 1000 && !in_time; ++ms) {
    for (const master::RemovalTicket ticket : core_->TakeFinishedRemovals()) {
      in_time = in_time || ticket == call.ticket();
    }
    if (!in_time) Run(absl::Milliseconds(1));
  }
  while (!call.FinishStep(*core_, in_time)) {
  }
  return reply;
}

SimStore* SimCluster::StoreOf(StoreIndex index) {
  const master::Store* known = core_->pool().stores.at(index);
  if (known == nullptr || known->id.bytes[0] == 0) return nullptr;
  return nodes_[known->id.bytes[0] - 1].store.get();
}

void SimCluster::Put(StoreIndex index, std::vector<KeyId> ids, absl::Duration delay) {
  SimStore* store = StoreOf(index);
  CISTERN_CHECK(store != nullptr);
  std::vector<ChunkName> chunks;
  for (const KeyId& id : ids) chunks.push_back({id, Shard(0)});
  events_.After(delay, [this, store, chunks = std::move(chunks)] {
    std::vector<ChunkName> refused;
    store->PutBatch(chunks, options_.chunk_bytes, &refused);
    if (refused.empty()) return;
    puts_without_room_ += refused.size();
    store->EvictSelf(refused.size() * RoundUp(options_.chunk_bytes, Extent::kAlignment));
    std::vector<ChunkName> lost;
    store->PutBatch(refused, options_.chunk_bytes, &lost);
  });
}

void SimCluster::CutSession(size_t i) { Reconnect(i); }

void SimCluster::RestartStore(size_t i, bool keep_chunks) {
  Reconnect(i);
  nodes_[i].store->Restart(keep_chunks, next_incarnation_++);
}

void SimCluster::RestartMaster() {
  // Every session goes with it; nothing is told to the old core.
  for (Node& node : nodes_) node.session = master::SessionId(0);
  StartMaster();
  for (size_t i = 0; i < nodes_.size(); ++i) Reconnect(i);
}

bool SimCluster::AllConnected() const {
  for (const Node& node : nodes_) {
    if (!node.streaming) return false;
  }
  return true;
}

std::string SimCluster::Differences() {
  std::string out;
  master::PoolState& pool = core_->pool();
  uint64_t held = 0;
  for (Node& node : nodes_) {
    uint64_t bytes = 0;
    for (const auto& [name, chunk] : node.store->chunks()) {
      ++held;
      bytes += RoundUp(chunk.length, Extent::kAlignment);
      const master::EntryIndex entry = pool.index.Find(name.id, name.shard);
      const master::Store* store = pool.stores.Find(node.store->id());
      const master::ReplicaSlot* slot =
          entry.none() || store == nullptr ? nullptr : pool.index.FindReplica(entry, store->index);
      if (slot == nullptr || slot->version() != chunk.version || slot->evicting() != 0) {
        absl::StrAppend(&out, node.store->name(), " holds ", name.id.ToHex(), " version ",
                        chunk.version.value, ", the index ",
                        slot == nullptr ? "does not know" : "has it otherwise", "\n");
      }
    }
    const master::Store* store = pool.stores.Find(node.store->id());
    if (store != nullptr && store->dram().bytes != bytes) {
      absl::StrAppend(&out, node.store->name(), " holds ", bytes, " bytes, accounted are ",
                      store->dram().bytes, "\n");
    }
    if (store != nullptr && store->dram().evicting_bytes != 0) {
      absl::StrAppend(&out, node.store->name(), ": ", store->dram().evicting_bytes,
                      " bytes are counted as leaving\n");
    }
  }
  uint64_t indexed = 0;
  for (uint32_t e = 0; e < pool.index.entry_limit(); ++e) {
    if (!pool.index.InUse(master::EntryIndex(e))) continue;
    pool.index.ForEachReplica(master::EntryIndex(e), [&](master::ReplicaSlot&) {
      ++indexed;
      return true;
    });
  }
  if (indexed != held) {
    absl::StrAppend(&out, "the index has ", indexed, " replicas, the stores hold ", held, "\n");
  }
  return out;
}

}  // namespace cistern::simulation
