// SessionStream under a real gRPC server: bounds, ends and lifetimes.
#include "master/session_stream.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/eventually.h"
#include "proto/store.grpc.pb.h"

namespace cistern::master {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

wire::MasterMessage Ack(uint64_t seq) {
  wire::MasterMessage message;
  message.mutable_ack()->set_seq(seq);
  return message;
}

wire::MasterMessage Big() {
  wire::MasterMessage message;
  message.mutable_evict()->set_ids(std::string(1 << 20, 'x'));
  return message;
}

// Hands the last stream out and counts what it tells.
class Service final : public wire::StoreSession::CallbackService, public SessionStreamOwner {
 public:
  explicit Service(SessionStream::Limits limits) : limits_(limits) {}

  grpc::ServerBidiReactor<wire::StoreMessage, wire::MasterMessage>* Session(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<SessionStream>(1, context, this, Clock::Real(), limits_);
    {
      MutexLock lock(mutex_);
      stream_ = stream;
    }
    stream->Start();
    return stream.get();
  }
  bool OnStreamMessage(SessionStream&, wire::StoreMessage& message) override {
    last_seq = message.fence_done().record_seq();
    ++messages;
    return !keep;
  }
  void OnStreamRoom(SessionStream&) override { ++rooms; }
  void OnStreamClosed(SessionStream&) override { ++closed; }

  std::shared_ptr<SessionStream> stream() {
    MutexLock lock(mutex_);
    return stream_;
  }
  void Forget() {
    MutexLock lock(mutex_);
    stream_ = nullptr;
  }

  std::atomic<bool> keep = false;  // the messages, until somebody calls ReadNext
  std::atomic<uint64_t> last_seq = 0;
  std::atomic<int> messages = 0;
  std::atomic<int> rooms = 0;
  std::atomic<int> closed = 0;

 private:
  const SessionStream::Limits limits_;
  Mutex mutex_;
  std::shared_ptr<SessionStream> stream_ ABSL_GUARDED_BY(mutex_);
};

class SessionStreamTest : public ::testing::Test {
 protected:
  void Serve(SessionStream::Limits limits = SessionStream::Limits()) {
    service_ = std::make_unique<Service>(limits);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    stub_ = wire::StoreSession::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                            grpc::InsecureChannelCredentials()));
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(absl::ToChronoTime(Clock::Real().Wall() + kPatience));
    client_ = stub_->Session(context_.get());
    // The server sees the stream with its first message.
    client_->Write(wire::StoreMessage());
    ASSERT_TRUE(Eventually([&] { return service_->messages == 1; }));
  }
  ~SessionStreamTest() override { End(); }
  // Ends the stream and its server.
  void End() {
    if (server_ == nullptr) return;
    context_->TryCancel();
    client_ = nullptr;
    service_->Forget();
    server_->Shutdown(absl::ToChronoTime(Clock::Real().Wall() + absl::Seconds(5)));
    EXPECT_EQ(service_->closed, 1);
    server_ = nullptr;
    stub_ = nullptr;
  }
  // Sends while there is room, until the peer's side takes no more: gRPC's own buffers are full.
  // Returns how many were sent.
  int SendUntilStalled(SessionStream& stream) {
    constexpr int kMost = 100;
    int sent = 0;
    EXPECT_TRUE(Eventually([&] {
      for (; stream.HasRoom() && sent < kMost; ++sent) stream.Send(Big());
      return stream.StalledFor(Clock::Real().Mono()) > absl::Milliseconds(100);
    }));
    EXPECT_LT(sent, kMost);
    return sent;
  }

  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<wire::StoreSession::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<wire::StoreMessage, wire::MasterMessage>> client_;
};

TEST_F(SessionStreamTest, MessagesArriveInTheOrderTheyWereSent) {
  Serve();
  for (uint64_t i = 0; i < 200; ++i) service_->stream()->Send(Ack(i));
  wire::MasterMessage message;
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(client_->Read(&message)) << i;
    EXPECT_EQ(message.ack().seq(), i);
  }
}

TEST_F(SessionStreamTest, ErrorIsTheLastMessageAndBehindWhatWasQueued) {
  Serve();
  service_->stream()->Send(Ack(1));
  service_->stream()->CloseWithError(absl::AbortedError("why"));
  service_->stream()->Send(Ack(2));
  wire::MasterMessage message;
  ASSERT_TRUE(client_->Read(&message));
  EXPECT_EQ(message.ack().seq(), 1u);
  ASSERT_TRUE(client_->Read(&message));
  EXPECT_EQ(message.error().message(), "why");
  EXPECT_EQ(message.error().code(), static_cast<uint32_t>(absl::StatusCode::kAborted));
  EXPECT_FALSE(client_->Read(&message));
  EXPECT_TRUE(client_->Finish().ok());
  EXPECT_TRUE(Eventually([&] { return service_->closed == 1; }));
}

TEST_F(SessionStreamTest, PeerThatDoesNotReadFillsTheQueueAndIsCut) {
  SessionStream::Limits limits;
  limits.max_queued_messages = 20;
  limits.max_queued_bytes = 8 << 20;
  limits.room_bytes = 2 << 20;
  Serve(limits);
  const auto stream = service_->stream();
  EXPECT_TRUE(stream->HasRoom());
  // gRPC takes some into its own buffers; then the queue grows to its bound of 8 MiB.
  for (int i = 0; i < 100 && service_->closed == 0; ++i) stream->Send(Big());
  EXPECT_FALSE(stream->HasRoom());
  EXPECT_TRUE(Eventually([&] { return service_->closed == 1; }));
  wire::MasterMessage message;
  while (client_->Read(&message)) {
  }
  EXPECT_FALSE(client_->Finish().ok());
}

TEST_F(SessionStreamTest, SlowPeerIsSeenToStallAndRoomIsToldWhenItReads) {
  SessionStream::Limits limits;
  limits.room_bytes = 2 << 20;
  Serve(limits);
  const auto stream = service_->stream();
  const int sent = SendUntilStalled(*stream);
  ASSERT_FALSE(stream->HasRoom());
  const int rooms = service_->rooms;
  wire::MasterMessage message;
  for (int i = 0; i < sent; ++i) ASSERT_TRUE(client_->Read(&message)) << i;
  EXPECT_TRUE(Eventually([&] { return service_->rooms > rooms && stream->HasRoom(); }));
  EXPECT_TRUE(
      Eventually([&] { return stream->StalledFor(Clock::Real().Mono()) == absl::ZeroDuration(); }));
}

TEST_F(SessionStreamTest, AbortEndsAWriteThatThePeerDoesNotTake) {
  Serve();
  const auto stream = service_->stream();
  SendUntilStalled(*stream);
  stream->Close();
  EXPECT_LT(stream->closing_since(), MonoTime::Infinite());
  stream->Abort();
  stream->Abort();  // harmless
  EXPECT_TRUE(Eventually([&] { return service_->closed == 1; }));
}

wire::StoreMessage Numbered(uint64_t seq) {
  wire::StoreMessage message;
  message.mutable_fence_done()->set_record_seq(seq);
  return message;
}

TEST_F(SessionStreamTest, TheNextMessageIsReadWhenTheOneBeforeIsDealtWith) {
  Serve();
  service_->keep = true;
  for (uint64_t i = 1; i <= 3; ++i) client_->Write(Numbered(i));
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(Eventually([&] { return service_->messages == static_cast<int>(1 + i); })) << i;
    EXPECT_EQ(service_->last_seq, i);
    // What is sent does not wait for it.
    service_->stream()->Send(Ack(i));
    wire::MasterMessage message;
    ASSERT_TRUE(client_->Read(&message));
    EXPECT_EQ(message.ack().seq(), i);
    EXPECT_EQ(service_->messages, static_cast<int>(1 + i));
    service_->stream()->ReadNext();
  }
}

// Cut, closed or abandoned by its peer while a message is in hand: it ends, and only behind that.
TEST_F(SessionStreamTest, EndsBehindTheMessageInHand) {
  for (const int way : {0, 1, 2}) {
    SCOPED_TRACE(way);
    if (way > 0) End();
    Serve();
    const auto stream = service_->stream();
    service_->keep = true;
    client_->Write(Numbered(7));
    ASSERT_TRUE(Eventually([&] { return service_->messages == 2; }));
    if (way == 0) stream->Abort();
    if (way == 1) stream->CloseWithError(absl::AbortedError("why"));
    if (way == 2) context_->TryCancel();
    Clock::Real().SleepFor(absl::Milliseconds(20));
    EXPECT_EQ(service_->closed, 0);
    EXPECT_EQ(service_->last_seq, 7u);  // nothing else was read into it
    stream->ReadNext();
    EXPECT_TRUE(Eventually([&] { return service_->closed == 1; }));
    stream->Send(Ack(1));  // silently
  }
}

TEST_F(SessionStreamTest, HeldAfterItsEndItTakesMessagesSilently) {
  Serve();
  const auto stream = service_->stream();
  context_->TryCancel();
  EXPECT_TRUE(Eventually([&] { return service_->closed == 1; }));
  stream->Send(Ack(1));
  stream->Close();
  stream->Abort();
  EXPECT_FALSE(stream->HasRoom());
}

}  // namespace
}  // namespace cistern::master
