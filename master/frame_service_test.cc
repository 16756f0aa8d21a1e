// FrameService without sockets: calls made by hand, a clock that is told the time.
#include "master/frame_service.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "proto/master.pb.h"

namespace cistern::master {
namespace {

using transport::FrameType;

// What became of one call.
struct Outcome {
  Mutex mutex;
  CondVar ended;
  int ends ABSL_GUARDED_BY(mutex) = 0;
  absl::Status status ABSL_GUARDED_BY(mutex);
  FrameType type ABSL_GUARDED_BY(mutex){};
  std::string meta ABSL_GUARDED_BY(mutex);
};

class FakeConnection final : public transport::ServerConnection {
 public:
  const transport::PeerInfo& peer() const override { return peer_; }
  uint64_t id() const override { return 1; }

 private:
  transport::PeerInfo peer_;
};

class FakeCall final : public transport::ServerCall {
 public:
  FakeCall(FrameType type, std::string meta, MonoTime received_at, FakeConnection& connection,
           std::shared_ptr<Outcome> outcome)
      : type_(type),
        meta_(std::move(meta)),
        received_at_(received_at),
        connection_(connection),
        outcome_(std::move(outcome)) {}

  FrameType type() const override { return type_; }
  std::string_view meta() const override { return meta_; }
  MonoTime received_at() const override { return received_at_; }
  transport::ServerConnection& connection() override { return connection_; }
  uint64_t inline_payload_bytes() const override { return 0; }
  void ReceivePayload(uint64_t, transport::PayloadSink*,
                      absl::AnyInvocable<void(absl::Status)>) override {}
  void Reply(FrameType type, std::string meta, bool final,
             std::unique_ptr<transport::PayloadSource>,
             absl::AnyInvocable<void(absl::Status)>) override {
    EXPECT_TRUE(final);
    End(absl::OkStatus(), type, std::move(meta));
  }
  void Fail(const absl::Status& status) override { End(status, FrameType::kError, ""); }
  void ProtocolError(const absl::Status& why) override { End(why, FrameType::kError, ""); }
  void OnAbort(absl::AnyInvocable<void(absl::Status)>) override {}
  bool aborted() const override { return false; }
  void Post(absl::AnyInvocable<void()> fn) override { fn(); }

 private:
  void End(absl::Status status, FrameType type, std::string meta) {
    MutexLock lock(outcome_->mutex);
    ++outcome_->ends;
    outcome_->status = std::move(status);
    outcome_->type = type;
    outcome_->meta = std::move(meta);
    outcome_->ended.NotifyAll();
  }

  const FrameType type_;
  const std::string meta_;
  const MonoTime received_at_;
  FakeConnection& connection_;
  const std::shared_ptr<Outcome> outcome_;
};

class FrameServiceTest : public ::testing::Test {
 protected:
  FrameServiceTest() : dir_(::testing::TempDir() + "frames_XXXXXX") {
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    EXPECT_TRUE(RocksStateStore::Create(dir_, PoolIdentity()).ok());
    state_ = *RocksStateStore::Open(dir_);
    CoreDriver::Options options;
    options.core.random_bytes = [](void* out, size_t n) { std::memset(out, 7, n); };
    driver_.emplace(std::move(options), *state_, clock_);
    EXPECT_TRUE(driver_->With([](MasterCore& core, MonoTime now) { return core.Start(now); }).ok());
    EXPECT_TRUE(state_->Flush().ok());
    FrameService::Options limits;
    limits.max_binds = 3;
    service_.emplace(limits, *driver_, *state_);
    service_->OnConnected(connection_);
  }
  ~FrameServiceTest() override {
    EXPECT_TRUE(state_->Flush().ok());
    std::filesystem::remove_all(dir_);
  }

  // The one end of the call. Waits: an answer may depend on the disk.
  absl::StatusOr<std::string> Call(FrameType type, std::string meta,
                                   absl::Duration ago = absl::ZeroDuration()) {
    const auto outcome = std::make_shared<Outcome>();
    service_->OnRequest(std::make_unique<FakeCall>(type, std::move(meta), clock_.Mono() - ago,
                                                   connection_, outcome));
    MutexLock lock(outcome->mutex);
    while (outcome->ends == 0) {
      if (!outcome->ended.WaitFor(outcome->mutex, absl::Seconds(30))) break;
    }
    EXPECT_EQ(outcome->ends, 1);
    if (!outcome->status.ok()) return outcome->status;
    return outcome->meta;
  }
  wire::OpenNamespaceReply Open(const std::string& name) {
    wire::OpenNamespaceRequest request;
    request.set_name(name);
    request.set_fingerprint("fp");
    wire::OpenNamespaceReply reply;
    const auto meta = Call(FrameType::kOpenNamespace, request.SerializeAsString());
    EXPECT_TRUE(meta.ok()) << meta.status();
    EXPECT_TRUE(meta.ok() && reply.ParseFromString(*meta));
    return reply;
  }
  absl::Status Bind(const std::string& id, uint32_t* ref = nullptr) {
    wire::BindNamespaceRequest request;
    request.set_id(id);
    const auto meta = Call(FrameType::kMasterBindNamespace, request.SerializeAsString());
    wire::OpenNamespaceReply reply;
    if (meta.ok() && ref != nullptr && reply.ParseFromString(*meta)) *ref = reply.ns_ref();
    return meta.status();
  }
  static std::string Lookup(uint32_t ref, uint32_t deadline_ms) {
    wire::LookupRequest request;
    request.set_map_version(1);
    request.set_ns_ref(ref);
    request.set_ids(std::string(32, 'k'));
    request.set_deadline_ms(deadline_ms);
    return request.SerializeAsString();
  }
  uint64_t Lookups() {
    return driver_->With(
        [](MasterCore& core, MonoTime now) { return core.Pool(now).counters.lookups; });
  }

  std::string dir_;
  FakeClock clock_;
  std::unique_ptr<RocksStateStore> state_;
  std::optional<CoreDriver> driver_;
  std::optional<FrameService> service_;
  FakeConnection connection_;
};

TEST_F(FrameServiceTest, RequestWhoseTimeHasPassedIsDroppedBeforeAnyWork) {
  ASSERT_TRUE(Bind(Open("ns").info().id()).ok());
  EXPECT_TRUE(Call(FrameType::kLookup, Lookup(1, 10), absl::Milliseconds(9)).ok());
  EXPECT_EQ(Lookups(), 1u);
  const absl::Status late =
      Call(FrameType::kLookup, Lookup(1, 10), absl::Milliseconds(10)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_EQ(Lookups(), 1u);
}

TEST_F(FrameServiceTest, RequestWithoutADeadlineHasFiveSeconds) {
  ASSERT_TRUE(Bind(Open("ns").info().id()).ok());
  EXPECT_TRUE(Call(FrameType::kLookup, Lookup(1, 0), absl::Milliseconds(4999)).ok());
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(Call(FrameType::kLookup, Lookup(1, 0), absl::Seconds(5)).status()));
}

TEST_F(FrameServiceTest, CreatedNamespaceIsOnDiskWhenItIsAnswered) {
  EXPECT_TRUE(Open("kept").created());
  const auto saved = state_->Load();
  ASSERT_TRUE(saved.ok()) << saved.status();
  ASSERT_EQ(saved->namespaces.size(), 1u);
  EXPECT_EQ(saved->namespaces[0].name(), "kept");
  EXPECT_FALSE(Open("kept").created());
}

TEST_F(FrameServiceTest, BindsAreNumberedAndBounded) {
  const std::string id = Open("ns").info().id();
  EXPECT_TRUE(absl::IsNotFound(Bind(std::string(16, '?'))));
  uint32_t ref = 0;
  EXPECT_TRUE(Bind(id, &ref).ok());
  EXPECT_EQ(ref, 2u);
  EXPECT_TRUE(Bind(id, &ref).ok());
  EXPECT_EQ(ref, 3u);
  EXPECT_TRUE(absl::IsResourceExhausted(Bind(id)));
  EXPECT_TRUE(absl::IsFailedPrecondition(Call(FrameType::kLookup, Lookup(0, 9)).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Call(FrameType::kLookup, Lookup(1, 9)).status()));
  EXPECT_TRUE(Call(FrameType::kLookup, Lookup(3, 9)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Call(FrameType::kLookup, Lookup(4, 9)).status()));
}

TEST_F(FrameServiceTest, EchoIsBoundedAndComesBack) {
  wire::PingRequest request;
  request.set_echo(std::string(64 << 10, 'e'));
  const auto meta = Call(FrameType::kPing, request.SerializeAsString());
  ASSERT_TRUE(meta.ok()) << meta.status();
  wire::PingReply reply;
  ASSERT_TRUE(reply.ParseFromString(*meta));
  EXPECT_EQ(reply.echo(), request.echo());
  request.mutable_echo()->push_back('e');
  EXPECT_TRUE(
      absl::IsInvalidArgument(Call(FrameType::kPing, request.SerializeAsString()).status()));
}

TEST_F(FrameServiceTest, BatchBeyond32768KeysIsRefused) {
  ASSERT_TRUE(Bind(Open("ns").info().id()).ok());
  wire::ExistsRequest request;
  request.set_map_version(1);
  request.set_ns_ref(1);
  request.set_ids(std::string(16 * 32'768, 'k'));
  EXPECT_TRUE(Call(FrameType::kExists, request.SerializeAsString()).ok());
  request.mutable_ids()->append(16, 'k');
  EXPECT_TRUE(
      absl::IsInvalidArgument(Call(FrameType::kExists, request.SerializeAsString()).status()));
}

// Whatever the bytes are, each call ends exactly once (Call checks) and the service goes on.
TEST_F(FrameServiceTest, RandomBytesGetOneAnswerEach) {
  ASSERT_TRUE(Bind(Open("ns").info().id()).ok());
  std::mt19937_64 random(20240607);
  const std::string seeds[] = {Lookup(1, 1000), wire::OpenNamespaceRequest().SerializeAsString()};
  for (int i = 0; i < 5000; ++i) {
    const auto type = static_cast<FrameType>(random() % 50);
    std::string meta = seeds[random() % 2];
    if (random() % 2 == 0) meta.assign(random() % 64, '\0');
    const size_t flips = random() % 8;
    for (size_t f = 0; f < flips && !meta.empty(); ++f) {
      meta[random() % meta.size()] = static_cast<char>(random());
    }
    Call(type, meta).IgnoreError();
  }
  wire::PingRequest ping;
  EXPECT_TRUE(Call(FrameType::kPing, ping.SerializeAsString()).ok());
}

}  // namespace
}  // namespace cistern::master
