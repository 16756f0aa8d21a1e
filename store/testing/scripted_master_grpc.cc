#include <grpcpp/grpcpp.h>

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/status.h"
#include "proto/store.grpc.pb.h"
#include "store/testing/scripted_master.h"
#include "transport/handshake.h"

namespace cistern::store {

using Stream = grpc::ServerReaderWriter<wire::MasterMessage, wire::StoreMessage>;

class ScriptedMaster::Service final : public wire::StoreSession::Service {
 public:
  explicit Service(ScriptedMaster& master) : master_(master) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(16 << 20);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    CISTERN_CHECK(server_ != nullptr);
  }
  ~Service() override {
    server_->Shutdown(std::chrono::system_clock::time_point::min());
    server_->Wait();
  }
  int port() const { return port_; }

  grpc::Status Session(grpc::ServerContext* context, Stream* stream) override {
    const absl::Status opened = Open(stream);
    if (!opened.ok()) {
      return {static_cast<grpc::StatusCode>(opened.raw_code()), std::string(opened.message())};
    }
    std::thread writer([&] { WriteOutbox(context, stream); });
    wire::StoreMessage message;
    while (stream->Read(&message)) Hear(message);
    {
      MutexLock lock(master_.mutex_);
      master_.open_ = false;
      master_.changed_.NotifyAll();
    }
    writer.join();
    return grpc::Status::OK;
  }

 private:
  absl::Status Open(Stream* stream) {
    transport::LocalIdentity identity;
    identity.kind = wire::PEER_MASTER;
    identity.token = master_.token_;
    identity.pool_id = master_.pool_id_;
    identity.peer_id = std::string(16, 'M');
    transport::ServerHandshake handshake(identity, transport::ServerOffer{});
    wire::StoreMessage message;
    wire::MasterMessage answer;
    if (!stream->Read(&message)) return absl::UnavailableError("no hello");
    CISTERN_ASSIGN_OR_RETURN(*answer.mutable_auth_ack(), handshake.OnHello(message.hello_auth()));
    stream->Write(answer);
    if (!stream->Read(&message)) return absl::UnavailableError("no auth");
    CISTERN_RETURN_IF_ERROR(handshake.OnAuth(message.auth()));
    if (!stream->Read(&message)) return absl::UnavailableError("no session hello");
    wire::SessionHelloAck* ack = answer.mutable_hello_ack();
    {
      MutexLock lock(master_.mutex_);
      master_.hello_ = message.hello();
      master_.namespaces_.clear();
      for (const wire::NamespaceInfo& info : message.hello().namespaces()) {
        master_.namespaces_.push_back(NamespaceId::FromBytes(info.id().data()));
      }
      ack->set_epoch(master_.epoch_);
      ack->set_snapshot(!master_.resume_);
      ack->set_resume_seq(message.hello().log_first());
      master_.expected_seq_ = master_.resume_ ? message.hello().log_first() : 0;
      ack->set_delta_flush_us(500);
      ack->set_heartbeat_ms(50);
    }
    stream->Write(answer);
    MutexLock lock(master_.mutex_);
    master_.outbox_.clear();
    master_.open_ = true;
    master_.cut_ = false;
    ++master_.sessions_;
    master_.changed_.NotifyAll();
    return absl::OkStatus();
  }

  void WriteOutbox(grpc::ServerContext* context, Stream* stream) {
    while (true) {
      std::vector<wire::MasterMessage> out;
      {
        MutexLock lock(master_.mutex_);
        while (master_.open_ && !master_.cut_ && master_.outbox_.empty()) {
          master_.changed_.Wait(master_.mutex_);
        }
        if (!master_.open_) return;
        if (master_.cut_) {
          context->TryCancel();
          return;
        }
        out.swap(master_.outbox_);
      }
      for (const wire::MasterMessage& message : out) stream->Write(message);
    }
  }

  void Hear(const wire::StoreMessage& message) {
    MutexLock lock(master_.mutex_);
    switch (message.kind_case()) {
      case wire::StoreMessage::kDelta: {
        const wire::Delta& delta = message.delta();
        if (master_.expected_seq_ != 0 && delta.seq_first() != master_.expected_seq_) {
          master_.problem_ = absl::StrCat("delta starts at ", delta.seq_first(), ", expected ",
                                          master_.expected_seq_);
        }
        master_.Apply(delta, /*snapshot=*/false);
        master_.expected_seq_ = delta.seq_first() + delta.ids().size() / KeyId::kBytes;
        master_.outbox_.emplace_back();
        master_.outbox_.back().mutable_ack()->set_seq(master_.expected_seq_);
        break;
      }
      case wire::StoreMessage::kSnapshotBegin:
        master_.chunks_.clear();
        master_.snapshot_count_ = 0;
        master_.expected_seq_ = message.snapshot_begin().seq();
        break;
      case wire::StoreMessage::kSnapshotPage:
        master_.Apply(message.snapshot_page().records(), /*snapshot=*/true);
        break;
      case wire::StoreMessage::kSnapshotEnd:
        if (message.snapshot_end().count() != master_.snapshot_count_) {
          master_.problem_ = "the snapshot's end names another count than its pages hold";
        }
        ++master_.snapshots_ended_;
        break;
      case wire::StoreMessage::kHeartbeat:
        ++master_.heartbeats_;
        master_.heartbeat_ = message.heartbeat();
        break;
      case wire::StoreMessage::kNeedBytes:
        ++master_.need_bytes_;
        break;
      default:
        master_.problem_ = "a message that does not belong into an open session";
    }
    master_.changed_.NotifyAll();
  }

  ScriptedMaster& master_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

ScriptedMaster::ScriptedMaster(const PoolId& pool_id, std::string token)
    : pool_id_(pool_id), token_(std::move(token)), service_(std::make_unique<Service>(*this)) {}
ScriptedMaster::~ScriptedMaster() = default;

std::string ScriptedMaster::address() const { return absl::StrCat("127.0.0.1:", service_->port()); }

void ScriptedMaster::AnswerWithResume(bool resume) {
  MutexLock lock(mutex_);
  resume_ = resume;
}

void ScriptedMaster::SetEpoch(uint64_t epoch) {
  MutexLock lock(mutex_);
  epoch_ = epoch;
}

bool ScriptedMaster::Send(const wire::MasterMessage& message) {
  MutexLock lock(mutex_);
  if (!open_) return false;
  outbox_.push_back(message);
  changed_.NotifyAll();
  return true;
}

void ScriptedMaster::CutSession() {
  MutexLock lock(mutex_);
  cut_ = true;
  changed_.NotifyAll();
}

bool ScriptedMaster::WaitFor(const std::function<bool()>& done, absl::Duration timeout) {
  // Counted in waits, each at most as long as is left, so that no clock is needed.
  MutexLock lock(mutex_);
  while (!done()) {
    if (timeout <= absl::ZeroDuration()) return false;
    const absl::Duration step = absl::Milliseconds(20);
    if (!changed_.WaitFor(mutex_, step)) timeout -= step;
  }
  return true;
}

void ScriptedMaster::Apply(const wire::Delta& delta, bool snapshot) {
  for (const wire::NamespaceInfo& info : delta.new_namespaces()) {
    namespaces_.push_back(NamespaceId::FromBytes(info.id().data()));
  }
  const size_t n = delta.ids().size() / KeyId::kBytes;
  const auto ids = KeyColumn::Parse(delta.ids());
  const auto shards = Column<uint16_t>::Parse(delta.shards(), n, "shards", true, false);
  const auto versions = Column<uint64_t>::Parse(delta.versions(), n, "versions", false, false);
  const auto tiers =
      Column<uint8_t>::Parse(delta.tiers(), n, "tiers", true, false, wire::TIER_DRAM);
  const auto lengths = Column<uint32_t>::Parse(delta.lengths(), n, "lengths", false, false);
  const auto namespaces = Column<uint32_t>::Parse(delta.namespaces(), n, "ns", false, true);
  const auto causes = Column<uint8_t>::Parse(delta.causes(), n, "causes", false, true);
  for (const absl::Status& status :
       {ids.status(), shards.status(), versions.status(), tiers.status(), lengths.status(),
        namespaces.status(), causes.status()}) {
    if (!status.ok()) problem_ = status.ToString();
  }
  if (!problem_.empty()) return;
  for (size_t i = 0; i < n; ++i) {
    if ((*namespaces)[i] >= namespaces_.size()) {
      problem_ = "a record names a namespace that was not told";
      return;
    }
    ToldChunk chunk{(*versions)[i], (*tiers)[i], (*lengths)[i], (*causes)[i],
                    namespaces_[(*namespaces)[i]]};
    if (snapshot) ++snapshot_count_;
    if (chunk.tiers != 0) arrivals_.push_back((*ids)[i]);
    chunks_[{(*ids)[i], (*shards)[i]}] = chunk;
  }
}

}  // namespace cistern::store
