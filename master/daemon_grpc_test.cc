// The whole master on loopback: real frames, real sessions, a store that follows a script.
#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/columns.h"
#include "base/fault.h"
#include "base/key_hash.h"
#include "master/daemon_fixture_grpc.h"
#include "proto/admin.grpc.pb.h"

namespace cistern::master {
namespace {

using transport::FrameType;

// A plain connection to a local port; -1 when there is none.
int Dial(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

uint16_t StoreOf(const std::string& column, size_t i) {
  return Column<uint16_t>::Parse(column, column.size() / 2, "stores", false, false).value()[i];
}

TEST_F(DaemonTest, ReportedChunksAreFoundWhereTheyAre) {
  MustStart();
  auto client = BoundClient();
  auto store = ConnectedStore();
  const auto ids = Ids(0, 100);
  EXPECT_EQ(client->Present(ids), 0);
  store->Commit(0, {ids.begin(), ids.begin() + 60}, kChunk);
  EXPECT_TRUE(Eventually([&] { return client->Present(ids) == 60; }));
  const auto found = client->Lookup(ids);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->leading_run(), 60u);
  EXPECT_EQ(found->leased_keys(), 60u);
  EXPECT_EQ(found->lease_id().size(), 16u);
  EXPECT_EQ(StoreOf(found->stores(), 0), store->ack().store_index());
  EXPECT_EQ(StoreOf(found->stores(), 60), StoreIndex::kNone);
  // Every record is acknowledged in the end.
  EXPECT_TRUE(Eventually([&] { return store->acked() == 60; }));
}

// What the stores send waits for the core somewhere else than on the threads that answer on the
// port, however many of them send.
TEST_F(DaemonTest, AdminIsAnsweredWhileTheStoresMessagesWait) {
  constexpr int kStores = 8;
  MustStart();
  auto client = BoundClient();
  std::vector<std::unique_ptr<ScriptedStore>> stores;
  for (int i = 0; i < kStores; ++i) stores.push_back(ConnectedStore(static_cast<char>('a' + i)));
  ASSERT_TRUE(ArmFault("master.session.applied:delay=6s:0").ok());
  for (int i = 0; i < kStores; ++i) stores[static_cast<size_t>(i)]->Commit(0, Ids(i, 1), kChunk);
  ASSERT_TRUE(Eventually([] { return FaultActions("master.session.applied") > 0; }));
  Clock::Real().SleepFor(absl::Milliseconds(300));  // the others have come too
  const auto stub = admin::Admin::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(daemon_->grpc_port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(Clock::Real().Wall() + absl::Seconds(5)));
  admin::VersionReply version;
  const grpc::Status answered = stub->Version(&context, admin::VersionRequest(), &version);
  EXPECT_TRUE(answered.ok()) << answered.error_message();
  DisarmFaults();
  EXPECT_TRUE(Eventually([&] { return client->Present(Ids(0, kStores)) == kStores; }));
}

TEST_F(DaemonTest, PlacedChunkIsInProgressForOthersAndPresentOnceReported) {
  MustStart();
  auto client = BoundClient();
  auto store = ConnectedStore();
  const auto ids = Ids(0, 3);
  absl::StatusOr<wire::PlaceReply> first;
  // The store's capacity is known with its snapshot's end.
  ASSERT_TRUE(Eventually([&] {
    first = client->Place(ids, 'x');
    return first.ok() && first->refused() == std::string(1, '\0');
  })) << first.status();
  EXPECT_EQ(StoreOf(first->stores(), 2), store->ack().store_index());
  const auto other = client->Place(ids, 'y');
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->in_progress(), std::string(1, '\x07'));
  const auto repeated = client->Place(ids, 'x');
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_EQ(repeated->in_progress(), std::string(1, '\0'));
  EXPECT_EQ(repeated->stores(), first->stores());
  store->Commit(0, ids, kChunk);
  EXPECT_TRUE(Eventually([&] {
    const auto placed = client->Place(ids, 'z');
    return placed.ok() && placed->present() == std::string(1, '\x07');
  }));
}

TEST_F(DaemonTest, RemoveIsAnsweredWhenTheStoreHasReported) {
  MustStart();
  auto client = BoundClient();
  auto store = ConnectedStore();
  const auto ids = Ids(0, 10);
  store->Commit(0, {ids.begin(), ids.begin() + 8}, kChunk);
  ASSERT_TRUE(Eventually([&] { return client->Present(ids) == 8; }));
  const auto removed = client->Remove(ids, false);
  ASSERT_TRUE(removed.ok()) << removed.status();
  std::string expected(10, static_cast<char>(wire::CHUNK_OK));
  expected[8] = expected[9] = static_cast<char>(wire::CHUNK_NOT_FOUND);
  EXPECT_EQ(removed->statuses(), expected);
  EXPECT_EQ(removed->removed_count(), 8u);
  EXPECT_EQ(client->Present(ids), 0);
  EXPECT_EQ(store->chunk_count(), 0u);
}

TEST_F(DaemonTest, RemoveOfLeasedChunksIsRefusedUnlessForced) {
  MustStart();
  auto client = BoundClient();
  auto store = ConnectedStore();
  const auto ids = Ids(0, 4);
  store->Commit(0, ids, kChunk);
  ASSERT_TRUE(Eventually([&] { return client->Present(ids) == 4; }));
  wire::LookupRequest lookup;
  lookup.set_map_version(1);
  lookup.set_ns_ref(1);
  lookup.set_ids(std::string(ids[0].view()));
  const auto leased = client->Ask<wire::LookupReply>(FrameType::kLookup, lookup);
  ASSERT_TRUE(leased.ok()) << leased.status();
  ASSERT_EQ(leased->leased_keys(), 1u);
  const auto refused = client->Remove(ids, false);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->refused_count(), 1u);
  EXPECT_EQ(refused->statuses()[0], static_cast<char>(wire::CHUNK_FAILED_PRECONDITION));
  EXPECT_EQ(client->Present(ids), 1);
  wire::ReleaseRequest release;
  release.set_lease_id(leased->lease_id());
  const auto released = client->Ask<wire::ReleaseReply>(FrameType::kRelease, release);
  ASSERT_TRUE(released.ok()) << released.status();
  EXPECT_TRUE(released->released());
  EXPECT_EQ(client->Remove(ids, false)->removed_count(), 1u);
}

TEST_F(DaemonTest, RemoveEndsAtItsDeadlineWhenTheStoreIsSilent) {
  MustStart();
  auto client = BoundClient();
  ScriptedStore::Options options = StoreOptions();
  options.obeys = false;
  ScriptedStore store(options);
  ASSERT_TRUE(store.Connect().ok());
  const auto ids = Ids(0, 2);
  store.Commit(0, ids, kChunk);
  ASSERT_TRUE(Eventually([&] { return client->Present(ids) == 2; }));
  const auto removed = client->Remove(ids, false, /*deadline_ms=*/200);
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(removed->statuses(), std::string(2, static_cast<char>(wire::CHUNK_DEADLINE_EXCEEDED)));
}

TEST_F(DaemonTest, StoreAboveItsHighWatermarkIsEvictedFrom) {
  MustStart();
  auto client = BoundClient();
  auto store = ConnectedStore('a', /*capacity_bytes=*/100 * kChunk);
  const auto ids = Ids(0, 98);  // 0.98 of it, above 0.95
  store->Commit(0, ids, kChunk);
  // Down to the low watermark, 0.92.
  EXPECT_TRUE(Eventually([&] { return store->chunk_count() <= 92; }));
  EXPECT_TRUE(
      Eventually([&] { return client->Present(ids) == static_cast<int>(store->chunk_count()); }));
  EXPECT_GT(store->chunk_count(), 80u);
}

TEST_F(DaemonTest, ChunksOfAClosedSessionAreMissedUntilItResumes) {
  MustStart();
  auto client = BoundClient();
  auto store = ConnectedStore();
  const auto ids = Ids(0, 50);
  store->Commit(0, ids, kChunk);
  ASSERT_TRUE(Eventually([&] { return client->Present(ids) == 50; }));
  store->Disconnect();
  EXPECT_TRUE(Eventually([&] { return client->Present(ids) == 0; }));
  ASSERT_TRUE(store->Connect().ok());
  EXPECT_FALSE(store->ack().snapshot());
  EXPECT_TRUE(Eventually([&] { return client->Present(ids) == 50; }));
}

TEST_F(DaemonTest, NewIncarnationSendsASnapshotAndWhatItLostIsGone) {
  MustStart();
  auto client = BoundClient();
  const auto ids = Ids(0, 10);
  auto store = ConnectedStore();
  store->Commit(0, ids, kChunk);
  ASSERT_TRUE(Eventually([&] { return client->Present(ids) == 10; }));
  store = nullptr;
  ScriptedStore::Options options = StoreOptions();
  options.incarnation = 2;
  ScriptedStore again(options);
  ASSERT_TRUE(again.Connect().ok());
  EXPECT_TRUE(again.ack().snapshot());
  EXPECT_TRUE(Eventually([&] { return client->Present(ids) == 0; }));
  again.Commit(0, {ids[0]}, kChunk);
  EXPECT_TRUE(Eventually([&] { return client->Present(ids) == 1; }));
}

TEST_F(DaemonTest, NewerSessionOfAStoreEndsTheOlder) {
  MustStart();
  auto older = ConnectedStore();
  auto newer = ConnectedStore();
  EXPECT_TRUE(Eventually([&] { return older->ended(); }));
  EXPECT_TRUE(absl::IsAborted(older->error())) << older->error();
  EXPECT_FALSE(newer->ended());
}

TEST_F(DaemonTest, RestartKeepsNamespacesAndRaisesTheEpoch) {
  MustStart();
  EXPECT_EQ(daemon_->epoch(), Epoch(1));
  const PoolId pool = daemon_->pool_id();
  ASSERT_TRUE(Client()->Open("kept", "f1").ok());
  daemon_ = nullptr;
  MustStart();
  EXPECT_EQ(daemon_->epoch(), Epoch(2));
  EXPECT_EQ(daemon_->pool_id(), pool);
  auto client = Client();
  const auto again = client->Open("kept", "f1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->created());
  EXPECT_EQ(again->ns_ref(), 0u);
  const absl::Status other = client->Open("kept", "f2").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
}

TEST_F(DaemonTest, HigherEpochOfAStoreIsTakenOverAndSaved) {
  MustStart();
  auto first = ConnectedStore('a');
  EXPECT_EQ(first->ack().epoch(), 1u);
  ScriptedStore::Options options = StoreOptions('b');
  options.highest_epoch = 41;
  ScriptedStore second(options);
  ASSERT_TRUE(second.Connect().ok());
  EXPECT_EQ(second.ack().epoch(), 42u);
  EXPECT_TRUE(Eventually([&] { return first->epoch_heard() == 42; }));
  first = nullptr;
  second.Disconnect();
  daemon_ = nullptr;
  MustStart();
  EXPECT_EQ(daemon_->epoch(), Epoch(43));
}

TEST_F(DaemonTest, MasterIsToldToStopWhenAStoreServesAnotherOfAHigherEpoch) {
  MustStart();
  ScriptedStore::Options options = StoreOptions();
  options.highest_epoch = 9;
  options.in_session_elsewhere = true;
  ScriptedStore store(options);
  EXPECT_TRUE(absl::IsFailedPrecondition(store.Connect()));
  daemon_ = nullptr;  // orders this thread behind the callback
  EXPECT_TRUE(absl::IsFailedPrecondition(fatal_)) << fatal_;
}

TEST_F(DaemonTest, StoreOfAnotherPoolIsRefused) {
  MustStart();
  ScriptedStore::Options options = StoreOptions();
  options.pool_id = PoolId();
  ScriptedStore store(options);
  const absl::Status status = store.Connect();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

TEST_F(DaemonTest, WrongTokenIsRefusedOnBothPorts) {
  const std::string token(32, 't');
  ASSERT_TRUE(StartDaemon(Config(), token).ok());
  for (const std::string& wrong : {std::string(), std::string(32, 'u')}) {
    EXPECT_TRUE(absl::IsPermissionDenied(Client(wrong)->Open("ns").status()))
        << Client(wrong)->Open("ns").status();
    ScriptedStore::Options options = StoreOptions();
    options.token = wrong;
    ScriptedStore store(options);
    const absl::Status status = store.Connect();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  }
  EXPECT_TRUE(Client(token)->Open("ns").ok());
  ScriptedStore::Options options = StoreOptions();
  options.token = token;
  ScriptedStore store(options);
  EXPECT_TRUE(store.Connect().ok());
}

TEST_F(DaemonTest, UnboundNamespaceIsRefusedPerConnection) {
  MustStart();
  auto client = Client();
  const absl::Status unbound = client->Lookup(Ids(0, 1)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(unbound)) << unbound;
  const auto opened = client->Open("ns");
  ASSERT_TRUE(opened.ok());
  // Opening binds nothing.
  EXPECT_TRUE(absl::IsFailedPrecondition(client->Lookup(Ids(0, 1)).status()));
  // A failed bind takes its number: the next one is 2.
  wire::BindNamespaceRequest bind;
  bind.set_id(std::string(16, '?'));
  const auto unknown = client->Ask<wire::OpenNamespaceReply>(FrameType::kMasterBindNamespace, bind);
  EXPECT_TRUE(absl::IsNotFound(unknown.status())) << unknown.status();
  bind.set_id(opened->info().id());
  const auto bound = client->Ask<wire::OpenNamespaceReply>(FrameType::kMasterBindNamespace, bind);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(bound->ns_ref(), 2u);
  EXPECT_TRUE(absl::IsFailedPrecondition(client->Lookup(Ids(0, 1)).status()));
}

TEST_F(DaemonTest, BadRequestsAreRefusedAndTheConnectionServesOn) {
  MustStart();
  auto client = BoundClient();
  const auto code = [&](FrameType type, std::string meta) {
    return client->Call(type, std::move(meta)).status().code();
  };
  EXPECT_EQ(code(FrameType::kLookup, "\xff\xff\xff"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(FrameType::kPut, ""), absl::StatusCode::kUnimplemented);
  wire::LookupRequest lookup;
  lookup.set_map_version(1);
  lookup.set_ns_ref(1);
  lookup.set_ids("not sixteen bytes");
  EXPECT_EQ(code(FrameType::kLookup, lookup.SerializeAsString()),
            absl::StatusCode::kInvalidArgument);
  wire::PlaceRequest place;
  place.set_map_version(1);
  place.set_ns_ref(1);
  place.set_ids(std::string(32, 'k'));
  place.set_operation_id(std::string(16, 'o'));
  place.set_lengths("12345");  // two chunks: 8 bytes, or 4 for both
  EXPECT_EQ(code(FrameType::kPlace, place.SerializeAsString()), absl::StatusCode::kInvalidArgument);
  wire::PingRequest ping;
  ping.set_echo("hello");
  const auto pong = client->Ask<wire::PingReply>(FrameType::kPing, ping);
  ASSERT_TRUE(pong.ok()) << pong.status();
  EXPECT_EQ(pong->echo(), "hello");
}

TEST_F(DaemonTest, HundredThousandKeysGoInFourRequestsAndNotInOne) {
  MustStart();
  auto client = BoundClient();
  auto store = ConnectedStore('a', uint64_t{100} << 30);
  const auto ids = Ids(0, 100'000);
  EXPECT_FALSE(client->Lookup(ids).ok());
  store->Commit(0, ids, kChunk);
  for (int part = 0; part < 4; ++part) {
    const std::vector<KeyId> some(ids.begin() + part * 25'000, ids.begin() + (part + 1) * 25'000);
    EXPECT_TRUE(Eventually([&] { return client->Present(some) == 25'000; }));
    const auto found = client->Lookup(some);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->leading_run(), 25'000u);
  }
}

TEST_F(DaemonTest, GarbageOnEveryPortCostsOneConnectionEach) {
  MustStart();
  auto client = BoundClient();
  auto store = ConnectedStore();
  std::string garbage(10'000, '\0');
  RandomBytes(garbage.data(), garbage.size());
  std::vector<int> fds;
  for (int i = 0; i < 50; ++i) {
    for (const uint16_t port : {daemon_->data_port(), daemon_->grpc_port()}) {
      fds.push_back(Dial(port));
      ASSERT_GE(fds.back(), 0);
      // The daemon may have closed it already: then nobody hears the rest.
      (void)send(fds.back(), garbage.data(), static_cast<size_t>(i) * 200, MSG_NOSIGNAL);
    }
  }
  store->Commit(0, Ids(0, 5), kChunk);
  EXPECT_TRUE(Eventually([&] { return client->Present(Ids(0, 5)) == 5; }));
  for (const int fd : fds) close(fd);
}

TEST_F(DaemonTest, ThousandIdleConnectionsDoNoHarm) {
  MustStart();
  auto client = BoundClient();
  std::vector<int> fds;
  for (int i = 0; i < 1000; ++i) {
    fds.push_back(Dial(daemon_->data_port()));
    ASSERT_GE(fds.back(), 0) << i;
  }
  auto store = ConnectedStore();
  store->Commit(0, Ids(0, 5), kChunk);
  EXPECT_TRUE(Eventually([&] { return client->Present(Ids(0, 5)) == 5; }));
  for (const int fd : fds) close(fd);
}

TEST_F(DaemonTest, StrangerOnTheSessionPortIsCutAfterTheHandshakeTimeout) {
  config::MasterConfig config = Config();
  config.set_handshake_timeout_ms(50);
  ASSERT_TRUE(StartDaemon(config).ok());
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(daemon_->grpc_port()),
                                           grpc::InsecureChannelCredentials());
  const auto stub = wire::StoreSession::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(Clock::Real().Wall() + absl::Seconds(30)));
  const auto stream = stub->Session(&context);
  wire::MasterMessage message;
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_NE(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(DaemonTest, SessionThatBreaksTheProtocolIsToldWhy) {
  MustStart();
  auto store = ConnectedStore();
  wire::StoreMessage message;
  wire::Delta* delta = message.mutable_delta();
  delta->set_ids(std::string(16, 'k'));
  delta->set_versions("short");
  store->SendRaw(message);
  EXPECT_TRUE(Eventually([&] { return store->ended(); }));
  EXPECT_TRUE(absl::IsInvalidArgument(store->error())) << store->error();
}

TEST_F(DaemonTest, SecondDaemonIsRefusedByFolderAndByPort) {
  MustStart();
  const auto second = [&](const config::MasterConfig& config) {
    MasterDaemon::Options options;
    options.config = config;
    return MasterDaemon::Start(std::move(options)).status();
  };
  const absl::Status folder = second(Config());
  EXPECT_TRUE(absl::IsFailedPrecondition(folder)) << folder;
  EXPECT_NE(folder.message().find("in use by another cistern-master"), absl::string_view::npos);
  for (const bool data : {true, false}) {
    config::MasterConfig config = Config();
    config.set_data_dir(dir_ + "/other");
    const uint16_t port = data ? daemon_->data_port() : daemon_->grpc_port();
    data ? config.set_data_port(port) : config.set_grpc_port(port);
    const absl::Status status = second(config);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_NE(status.message().find(std::to_string(port)), absl::string_view::npos) << status;
  }
}

TEST_F(DaemonTest, StopEndsWhatStillWaits) {
  MustStart();
  auto client = BoundClient();
  ScriptedStore::Options options = StoreOptions();
  options.obeys = false;
  ScriptedStore store(options);
  ASSERT_TRUE(store.Connect().ok());
  store.Commit(0, Ids(0, 1), kChunk);
  ASSERT_TRUE(Eventually([&] { return client->Present(Ids(0, 1)) == 1; }));
  std::thread waiter([&] { client->Remove(Ids(0, 1), false, 20'000).IgnoreError(); });
  EXPECT_TRUE(Eventually([&] { return store.evict_commands() > 0; }));
  const MonoTime before = Clock::Real().Mono();
  daemon_->Stop();
  EXPECT_LT(Clock::Real().Mono() - before, absl::Seconds(10));
  EXPECT_TRUE(Eventually([&] { return store.ended(); }));
  EXPECT_TRUE(absl::IsUnavailable(store.error())) << store.error();
  waiter.join();
}

}  // namespace
}  // namespace cistern::master
