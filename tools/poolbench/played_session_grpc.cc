#include "tools/poolbench/played_session_grpc.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "proto/store.grpc.pb.h"

namespace cistern::poolbench {
namespace {

constexpr absl::Duration kHeartbeat = absl::Milliseconds(500);
constexpr int kMaxMessageBytes = 16 << 20;

absl::Status Ended() { return absl::UnavailableError("the master ended a played store's session"); }

}  // namespace

struct PlayedSession::Stream {
  explicit Stream(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
    arguments.SetMaxSendMessageSize(kMaxMessageBytes);
    channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    stub = wire::StoreSession::NewStub(channel);
    context.set_deadline(absl::ToChronoTime(Clock::Real().Wall() + kLongestSession));
    calls = stub->Session(&context);
  }

  absl::Status Read(wire::MasterMessage* message) {
    if (!calls->Read(message)) return Ended();
    if (!message->has_error()) return absl::OkStatus();
    return absl::Status(static_cast<absl::StatusCode>(message->error().code()),
                        message->error().message());
  }

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<wire::StoreSession::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<wire::StoreMessage, wire::MasterMessage>> calls;
};

PlayedSession::PlayedSession(StorePlayer::Options store, std::string token)
    : token_(std::move(token)), player_(std::move(store)) {}

PlayedSession::~PlayedSession() { Disconnect(); }

void PlayedSession::Disconnect() {
  if (stream_ == nullptr) return;
  stream_->context
      .TryCancel();  // first: a write that waits for the master ends, and frees the lock
  {
    MutexLock lock(mutex_);
    connected_ = false;
  }
  if (reader_.joinable()) reader_.join();
  stream_->calls->Finish();
  stream_.reset();
}

absl::Status PlayedSession::Connect(const std::string& address) {
  stream_ = std::make_unique<Stream>(address);
  if (absl::Status status = Handshake(*stream_); !status.ok()) {
    Disconnect();
    return Annotate(status, "a played store's session");
  }
  reader_ = std::thread([this, stream = stream_.get()] { ReadLoop(*stream); });
  return absl::OkStatus();
}

absl::Status PlayedSession::Handshake(Stream& stream) {
  const std::string nonce(RandomId<OperationId>().view());
  wire::StoreMessage out;
  wire::MasterMessage in;
  wire::Hello* hello = out.mutable_hello_auth();
  hello->set_major_min(1);
  hello->set_major_max(1);
  hello->set_kind(wire::PEER_STORE);
  hello->set_incarnation(1);
  hello->set_boot_id(std::string(16, '\0'));
  hello->set_nonce(nonce);
  stream.calls->Write(out);
  CISTERN_RETURN_IF_ERROR(stream.Read(&in));
  // The master is this run's own child: its proof is not looked at.
  const wire::HelloAck& ack = in.auth_ack();
  CISTERN_ASSIGN_OR_RETURN(const PoolId pool_id, PoolId::Parse(ack.pool_id()));
  const auto proof =
      HmacSha256(token_, std::string(absl::StrCat("C", ack.nonce(), nonce, ack.pool_id())));
  out.mutable_auth()->set_proof(proof.data(), proof.size());
  stream.calls->Write(out);

  MutexLock lock(mutex_);
  *out.mutable_hello() = player_.Hello(pool_id, highest_epoch_);
  stream.calls->Write(out);
  CISTERN_RETURN_IF_ERROR(stream.Read(&in));
  if (!in.has_hello_ack()) return absl::InternalError("hello_ack must come first");
  highest_epoch_ = in.hello_ack().epoch();
  connected_ = true;
  if (in.hello_ack().snapshot()) {
    player_.Snapshot([&](const wire::StoreMessage& message) { stream.calls->Write(message); });
  }
  stream.calls->Write(player_.Heartbeat());
  return absl::OkStatus();
}

absl::Status PlayedSession::WriteLocked(const wire::StoreMessage& message) {
  if (!connected_ || !stream_->calls->Write(message)) return Ended();
  return absl::OkStatus();
}

absl::Status PlayedSession::Commit(uint64_t count) {
  MutexLock lock(mutex_);
  return WriteLocked(player_.Commit(count));
}

absl::Status PlayedSession::SendHeartbeat() {
  MutexLock lock(mutex_);
  return WriteLocked(player_.Heartbeat());
}

void PlayedSession::ReadLoop(Stream& stream) {
  wire::MasterMessage message;
  while (stream.calls->Read(&message)) {
    if (!message.has_evict()) continue;
    MutexLock lock(mutex_);
    if (!connected_) continue;
    const auto records = player_.OnEvict(message.evict());
    if (records.has_value()) stream.calls->Write(*records);
  }
  MutexLock lock(mutex_);
  connected_ = false;
}

void PlayedSession::Restart(uint64_t keep) {
  MutexLock lock(mutex_);
  player_.Restart(keep);
}

uint64_t PlayedSession::held() const {
  MutexLock lock(mutex_);
  return player_.held();
}

uint64_t PlayedSession::committed() const {
  MutexLock lock(mutex_);
  return player_.committed();
}

uint64_t PlayedSession::evicted() const {
  MutexLock lock(mutex_);
  return player_.evicted();
}

bool PlayedSession::Holds(uint64_t number) const {
  MutexLock lock(mutex_);
  return player_.Holds(number);
}

PlayedStores::PlayedStores(const Options& options, Clock& clock) : clock_(clock) {
  for (uint64_t i = 0; i < options.count; ++i) {
    StorePlayer::Options store;
    store.number = i;
    store.store_id = RandomId<StoreId>();
    store.capacity_bytes = options.capacity_bytes;
    store.chunk_bytes = options.chunk_bytes;
    store.ns = options.ns;
    stores_.push_back(std::make_unique<PlayedSession>(store, options.token));
  }
}

PlayedStores::~PlayedStores() { Disconnect(); }

absl::Status PlayedStores::Connect(const std::string& address) {
  // Side by side: a restarted master hears all of them at once too.
  std::vector<absl::Status> statuses(stores_.size());
  std::vector<std::thread> connecting;
  for (size_t i = 0; i < stores_.size(); ++i) {
    connecting.emplace_back([&, i] { statuses[i] = stores_[i]->Connect(address); });
  }
  for (std::thread& thread : connecting) thread.join();
  for (const absl::Status& status : statuses) CISTERN_RETURN_IF_ERROR(status);
  {
    MutexLock lock(mutex_);
    stopping_ = false;
  }
  beating_ = std::thread([this] { Beat(); });
  return absl::OkStatus();
}

void PlayedStores::Disconnect() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (beating_.joinable()) beating_.join();
  for (auto& store : stores_) store->Disconnect();
}

void PlayedStores::Beat() {
  MonoTime next = clock_.Mono() + kHeartbeat;
  while (true) {
    {
      MutexLock lock(mutex_);
      while (!stopping_ && clock_.Mono() < next) changed_.WaitFor(mutex_, next - clock_.Mono());
      if (stopping_) return;
    }
    next = next + kHeartbeat;
    // One whose session has ended says so to whoever commits on it.
    for (auto& store : stores_) store->SendHeartbeat().IgnoreError();
  }
}

absl::Status PlayedStores::Commit(uint64_t count, uint64_t batch) {
  while (count > 0) {
    const uint64_t n = std::min(count, batch);
    CISTERN_RETURN_IF_ERROR(stores_[next_store_]->Commit(n));
    next_store_ = (next_store_ + 1) % stores_.size();
    count -= n;
  }
  return absl::OkStatus();
}

void PlayedStores::Restart(uint64_t keep) {
  for (size_t i = 0; i < stores_.size(); ++i) {
    stores_[i]->Restart(keep * (i + 1) / stores_.size() - keep * i / stores_.size());
  }
}

uint64_t PlayedStores::held() const {
  uint64_t sum = 0;
  for (const auto& store : stores_) sum += store->held();
  return sum;
}

uint64_t PlayedStores::evicted() const {
  uint64_t sum = 0;
  for (const auto& store : stores_) sum += store->evicted();
  return sum;
}

}  // namespace cistern::poolbench
