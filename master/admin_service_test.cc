// The admin service over gRPC, on a whole master.
#include "master/admin_service.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/key_hash.h"
#include "master/daemon_fixture_grpc.h"

namespace cistern::master {
namespace {

class AdminServiceTest : public DaemonTest {
 protected:
  std::unique_ptr<admin::Admin::Stub> Stub() {
    return admin::Admin::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", daemon_->grpc_port()), grpc::InsecureChannelCredentials()));
  }
  template <typename Reply, typename Request>
  grpc::Status Ask(grpc::Status (admin::Admin::Stub::*rpc)(grpc::ClientContext*, const Request&,
                                                           Reply*),
                   const Request& request, Reply* reply, const std::string& authorization = "",
                   absl::Duration timeout = absl::Seconds(20)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(Clock::Real().Wall() + timeout));
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    return (Stub().get()->*rpc)(&context, request, reply);
  }
  // A pool with `count` chunks of kChunk bytes in store a, all reported.
  void Fill(int count) {
    MustStart();
    client_ = BoundClient();
    store_ = ConnectedStore();
    store_->Commit(0, Ids(0, count), kChunk);
    ASSERT_TRUE(Eventually([&] { return client_->Present(Ids(0, count)) == count; }));
  }
  admin::StatsReply Stats() {
    admin::StatsReply reply;
    EXPECT_TRUE(Ask(&admin::Admin::Stub::Stats, admin::StatsRequest(), &reply).ok());
    return reply;
  }
  // Takes a lease of the pool's default time on one chunk.
  void Lease(const KeyId& id) {
    wire::LookupRequest lookup;
    lookup.set_map_version(1);
    lookup.set_ns_ref(1);
    lookup.set_ids(std::string(id.view()));
    const auto reply = client_->Ask<wire::LookupReply>(transport::FrameType::kLookup, lookup);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->leased_keys(), 1u);
  }

  std::unique_ptr<FrameClient> client_;
  std::unique_ptr<ScriptedStore> store_;
};

// Worked out with Python's hmac module and `openssl dgst -sha256 -mac HMAC` over "admin" and the 16
// bytes 00 01 .. 0f.
TEST(AdminAuthorizationTest, IsTheHmacOfAdminAndThePoolId) {
  EXPECT_EQ(AdminAuthorization(std::string(32, 't'),
                               PoolId::ParseHex("000102030405060708090a0b0c0d0e0f").value()),
            "Bearer 013a5af0d8c7ac1e8d833f945501d0ffd55f1928afca0ffc2b7e3a3254e67459");
}

TEST_F(AdminServiceTest, StatsShowPoolStoresAndNamespaces) {
  Fill(10);
  ASSERT_EQ(client_->Lookup(Ids(0, 20))->leading_run(), 10u);
  const admin::StatsReply stats = Stats();
  EXPECT_EQ(stats.pool().pool_id(), daemon_->pool_id().ToHex());
  EXPECT_EQ(stats.pool().epoch(), 1u);
  EXPECT_EQ(stats.pool().chunk_count(), 10u);
  EXPECT_EQ(stats.pool().lookups(), 1u);
  EXPECT_EQ(stats.pool().lookup_keys(), 20u);
  EXPECT_EQ(stats.pool().lookup_hits(), 10u);
  EXPECT_EQ(stats.pool().miss_absent(), 10u);
  EXPECT_GE(stats.pool().client_connections(), 1u);
  ASSERT_EQ(stats.stores_size(), 1);
  EXPECT_EQ(stats.stores(0).name(), "store-a");
  EXPECT_EQ(stats.stores(0).state(), "serving");
  EXPECT_EQ(stats.stores(0).endpoints(0), "127.0.0.1:1");
  ASSERT_EQ(stats.namespaces_size(), 1);
  EXPECT_EQ(stats.namespaces(0).name(), "ns");
  EXPECT_EQ(stats.namespaces(0).fingerprint(), "fp");
  EXPECT_EQ(stats.namespaces(0).chunk_count(), 10u);
  EXPECT_EQ(stats.namespaces(0).payload_bytes(), uint64_t{10} * kChunk);
  EXPECT_EQ(stats.namespaces(0).verify(), "always");
  // The store's own numbers come with its heartbeat.
  EXPECT_TRUE(Eventually([&] {
    const admin::StatsReply now = Stats();
    return now.pool().tiers_size() == 1 && now.pool().tiers(0).tier() == "dram" &&
           now.pool().tiers(0).chunk_count() == 10 &&
           now.pool().tiers(0).used_bytes() == uint64_t{10} * kChunk;
  }));
}

TEST_F(AdminServiceTest, SegmentsAreListed) {
  Fill(1);
  admin::SegmentsReply reply;
  ASSERT_TRUE(Ask(&admin::Admin::Stub::Segments, admin::SegmentsRequest(), &reply).ok());
  ASSERT_EQ(reply.segments_size(), 1);
  EXPECT_EQ(reply.segments(0).store(), "store-a");
  EXPECT_EQ(reply.segments(0).tier(), "dram");
  EXPECT_EQ(reply.segments(0).bytes(), uint64_t{1} << 30);
}

// An order to a store, and its answer, while another thread waits for the call's end.
class SegmentOrdersTest : public AdminServiceTest {
 protected:
  ~SegmentOrdersTest() override {
    if (caller_.joinable()) caller_.join();
  }
  void StartUnmount(absl::Duration timeout = absl::Seconds(20),
                    const std::string& store = "store-a") {
    admin::UnmountSegmentRequest request;
    request.set_store(store);
    request.set_segment("extra");
    caller_ = std::thread([this, request, timeout] {
      status_ =
          Ask(&admin::Admin::Stub::UnmountSegment, request, &unmounted_, std::string(), timeout);
    });
  }
  // The order that the store has got.
  wire::SegmentCommand Order() {
    EXPECT_TRUE(Eventually([&] { return !store_->segment_commands().empty(); }));
    return store_->segment_commands().at(0);
  }
  void AnswerOrder(uint64_t command, absl::StatusCode code, const std::string& message) {
    wire::StoreMessage out;
    out.mutable_segment_done()->set_command(command);
    out.mutable_segment_done()->set_code(static_cast<uint32_t>(code));
    out.mutable_segment_done()->set_message(message);
    out.mutable_segment_done()->mutable_segment()->set_name("extra");
    out.mutable_segment_done()->set_evicted_chunks(12);
    store_->SendRaw(out);
  }
  grpc::StatusCode Join() {
    caller_.join();
    return status_.error_code();
  }

  std::thread caller_;
  grpc::Status status_;
  admin::UnmountSegmentReply unmounted_;
};

TEST_F(SegmentOrdersTest, OrderReachesTheStoreAndItsAnswerTheCaller) {
  Fill(1);
  StartUnmount();
  const wire::SegmentCommand order = Order();
  EXPECT_EQ(order.unmount().segment(), "extra");
  EXPECT_EQ(order.epoch(), 1u);
  EXPECT_GT(order.deadline_ms(), 5'000u);
  EXPECT_LT(order.deadline_ms(), 20'000u);
  AnswerOrder(order.command() + 1, absl::StatusCode::kOk, "");  // nobody asked
  AnswerOrder(order.command(), absl::StatusCode::kOk, "");
  EXPECT_EQ(Join(), grpc::StatusCode::OK) << status_.error_message();
  EXPECT_EQ(unmounted_.segment().store(), "store-a");
  EXPECT_EQ(unmounted_.segment().name(), "extra");
  EXPECT_EQ(unmounted_.evicted_chunks(), 12u);
  EXPECT_FALSE(unmounted_.pending());
}

TEST_F(SegmentOrdersTest, StoresRefusalIsToldWithItsName) {
  Fill(1);
  StartUnmount();
  AnswerOrder(Order().command(), absl::StatusCode::kFailedPrecondition, "it is the last");
  EXPECT_EQ(Join(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status_.error_message(), "store store-a: it is the last");
}

TEST_F(SegmentOrdersTest, UnmountThatGoesOnIsNoError) {
  Fill(1);
  StartUnmount();
  AnswerOrder(Order().command(), absl::StatusCode::kDeadlineExceeded, "still being read");
  EXPECT_EQ(Join(), grpc::StatusCode::OK);
  EXPECT_TRUE(unmounted_.pending());
}

TEST_F(SegmentOrdersTest, SilentStoreEndsTheCallInTime) {
  Fill(1);
  StartUnmount(absl::Seconds(1));
  EXPECT_EQ(Join(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // Its late answer is nobody's; the session goes on.
  AnswerOrder(Order().command(), absl::StatusCode::kOk, "");
  store_->Commit(0, Ids(5, 1), kChunk);
  EXPECT_TRUE(Eventually([&] { return client_->Present(Ids(5, 1)) == 1; }));
}

TEST_F(SegmentOrdersTest, StoreThatGoesEndsTheCallAtOnce) {
  Fill(1);
  StartUnmount(absl::Seconds(60));
  Order();
  store_->Disconnect();
  EXPECT_EQ(Join(), grpc::StatusCode::ABORTED);
  EXPECT_NE(status_.error_message().find("store-a"), std::string::npos);
}

TEST_F(SegmentOrdersTest, StoppingMasterEndsTheCall) {
  Fill(1);
  StartUnmount(absl::Seconds(60));
  Order();
  daemon_->Stop();
  EXPECT_EQ(Join(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(SegmentOrdersTest, UnknownAbsentAndAmbiguousStoresAreRefused) {
  Fill(1);
  StartUnmount(absl::Seconds(20), "nobody");
  EXPECT_EQ(Join(), grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(status_.error_message().find("store-a"), std::string::npos) << "says who there is";
  // By number, and by id.
  for (const std::string& name : {std::string("0"), StoreOptions().store_id.ToHex()}) {
    const size_t before = store_->segment_commands().size();
    StartUnmount(absl::Seconds(20), name);
    ASSERT_TRUE(Eventually([&] { return store_->segment_commands().size() > before; })) << name;
    AnswerOrder(store_->segment_commands().back().command(), absl::StatusCode::kOk, "");
    EXPECT_EQ(Join(), grpc::StatusCode::OK) << name;
  }
  ScriptedStore::Options twin = StoreOptions('b');
  twin.name = "store-a";
  ScriptedStore other(twin);
  ASSERT_TRUE(other.Connect().ok());
  StartUnmount();
  EXPECT_EQ(Join(), grpc::StatusCode::INVALID_ARGUMENT);
  other.Disconnect();
  store_->Disconnect();
  ASSERT_TRUE(Eventually([&] { return Stats().stores(0).state() == "dead"; }));
  StartUnmount(absl::Seconds(20), "0");
  EXPECT_EQ(Join(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(AdminServiceTest, ListIsPagedAndComplete) {
  Fill(25);
  std::set<std::string> ids;
  admin::ListChunksRequest request;
  request.set_namespace_name("ns");
  request.set_limit(10);
  int calls = 0;
  do {
    admin::ListChunksReply reply;
    ASSERT_TRUE(Ask(&admin::Admin::Stub::ListChunks, request, &reply).ok());
    EXPECT_LE(reply.chunks_size(), 10);
    for (const admin::ChunkInfo& chunk : reply.chunks()) {
      ids.insert(chunk.id());
      EXPECT_EQ(chunk.namespace_name(), "ns");
      EXPECT_EQ(chunk.length(), kChunk);
      EXPECT_EQ(chunk.replicas(0).store(), "store-a");
    }
    request.set_page_token(reply.next_page_token());
  } while (request.page_token() != 0 && ++calls < 10);
  EXPECT_EQ(ids.size(), 25u);
}

TEST_F(AdminServiceTest, ChunkIsFoundByIdAndByKey) {
  Fill(3);
  admin::StatChunkRequest request;
  request.set_namespace_name("ns");
  request.set_key("2");  // Ids() hashes decimal numbers
  admin::StatChunkReply reply;
  ASSERT_TRUE(Ask(&admin::Admin::Stub::StatChunk, request, &reply).ok());
  EXPECT_EQ(reply.chunk().id(), Ids(2, 1)[0].ToHex());
  request.clear_key();
  request.set_id(Ids(1, 1)[0].ToHex());
  ASSERT_TRUE(Ask(&admin::Admin::Stub::StatChunk, request, &reply).ok());
  EXPECT_EQ(reply.chunk().id(), request.id());
  EXPECT_TRUE(reply.chunk().replicas(0).serving());
  request.set_id(Ids(9, 1)[0].ToHex());
  EXPECT_EQ(Ask(&admin::Admin::Stub::StatChunk, request, &reply).error_code(),
            grpc::StatusCode::NOT_FOUND);
  request.set_id("zz");
  EXPECT_EQ(Ask(&admin::Admin::Stub::StatChunk, request, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(AdminServiceTest, NamedChunksAreRemovedByIdAndByKey) {
  Fill(5);
  admin::RemoveChunksRequest request;
  request.set_namespace_name("ns");
  request.add_ids(Ids(0, 1)[0].ToHex());
  request.add_keys("1");
  request.add_keys("nothing");
  admin::RemoveChunksReply reply;
  ASSERT_TRUE(Ask(&admin::Admin::Stub::RemoveChunks, request, &reply).ok());
  EXPECT_EQ(reply.removed(), 2u);
  EXPECT_EQ(reply.not_found(), 1u);
  EXPECT_EQ(reply.pending(), 0u);
  EXPECT_EQ(client_->Present(Ids(0, 5)), 3);
}

TEST_F(AdminServiceTest, EverythingIsRemovedExceptWhatIsLeasedUnlessForced) {
  Fill(2000);
  Lease(Ids(0, 1)[0]);
  admin::RemoveChunksRequest request;
  request.set_all_in_pool(true);
  admin::RemoveChunksReply reply;
  ASSERT_TRUE(Ask(&admin::Admin::Stub::RemoveChunks, request, &reply).ok());
  EXPECT_EQ(reply.removed(), 1999u);
  EXPECT_EQ(reply.refused(), 1u);
  request.set_force(true);
  ASSERT_TRUE(Ask(&admin::Admin::Stub::RemoveChunks, request, &reply).ok());
  EXPECT_EQ(reply.removed(), 1u);
  EXPECT_EQ(Stats().pool().chunk_count(), 0u);
  EXPECT_EQ(store_->chunk_count(), 0u);
}

TEST_F(AdminServiceTest, UnclearRemovalsAreRefused) {
  Fill(1);
  admin::RemoveChunksReply reply;
  admin::RemoveChunksRequest request;
  EXPECT_EQ(Ask(&admin::Admin::Stub::RemoveChunks, request, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_all_in_pool(true);
  request.set_all_in_namespace(true);
  EXPECT_EQ(Ask(&admin::Admin::Stub::RemoveChunks, request, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_all_in_pool(false);
  request.set_namespace_name("unknown");
  EXPECT_EQ(Ask(&admin::Admin::Stub::RemoveChunks, request, &reply).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(client_->Present(Ids(0, 1)), 1);
}

TEST_F(AdminServiceTest, RemovedNamespaceFreesItsNameForAnotherFingerprint) {
  Fill(30);
  Lease(Ids(0, 1)[0]);
  admin::RemoveNamespaceRequest request;
  request.set_name("ns");
  admin::RemoveNamespaceReply reply;
  const grpc::Status leased = Ask(&admin::Admin::Stub::RemoveNamespace, request, &reply);
  EXPECT_EQ(leased.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << leased.error_message();
  request.set_force(true);
  ASSERT_TRUE(Ask(&admin::Admin::Stub::RemoveNamespace, request, &reply).ok());
  EXPECT_EQ(reply.chunks_removed(), 1u);
  EXPECT_EQ(store_->chunk_count(), 0u);
  const auto opened = Client()->Open("ns", "another");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_TRUE(opened->created());
  EXPECT_EQ(Ask(
                &admin::Admin::Stub::RemoveNamespace,
                [] {
                  admin::RemoveNamespaceRequest unknown;
                  unknown.set_name("unknown");
                  return unknown;
                }(),
                &reply)
                .error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(AdminServiceTest, EvictFreesTheBytesAskedForAndWaitsForTheStore) {
  Fill(100);
  admin::EvictRequest request;
  request.set_bytes(uint64_t{10} * kChunk);
  admin::EvictReply reply;
  ASSERT_TRUE(Ask(&admin::Admin::Stub::Evict, request, &reply).ok());
  EXPECT_EQ(reply.chunks(), 10u);
  EXPECT_EQ(reply.bytes(), uint64_t{10} * kChunk);
  EXPECT_EQ(store_->chunk_count(), 90u);
  request.set_bytes(0);
  ASSERT_TRUE(Ask(&admin::Admin::Stub::Evict, request, &reply).ok());
  EXPECT_EQ(reply.chunks(), 90u);
  EXPECT_EQ(store_->chunk_count(), 0u);
  EXPECT_EQ(Stats().pool().evictions_by_cause().at("evict_admin"), 100u);
}

TEST_F(AdminServiceTest, WithATokenOnlyVersionIsOpenToAll) {
  const std::string token(32, 't');
  ASSERT_TRUE(StartDaemon(Config(), token).ok());
  admin::VersionReply version;
  ASSERT_TRUE(Ask(&admin::Admin::Stub::Version, admin::VersionRequest(), &version).ok());
  EXPECT_EQ(version.pool_id(), daemon_->pool_id().ToHex());
  const auto code = [&](const std::string& authorization) {
    admin::StatsReply stats;
    admin::RemoveChunksReply removed;
    admin::EvictReply evicted;
    admin::RemoveNamespaceReply dropped;
    const grpc::StatusCode codes[] = {
        Ask(&admin::Admin::Stub::Stats, admin::StatsRequest(), &stats, authorization).error_code(),
        Ask(&admin::Admin::Stub::Evict, admin::EvictRequest(), &evicted, authorization)
            .error_code(),
        Ask(
            &admin::Admin::Stub::RemoveChunks,
            [] {
              admin::RemoveChunksRequest all;
              all.set_all_in_pool(true);
              return all;
            }(),
            &removed, authorization)
            .error_code(),
    };
    EXPECT_EQ(codes[0], codes[1]);
    EXPECT_EQ(codes[0], codes[2]);
    return codes[0];
  };
  EXPECT_EQ(code(""), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("Bearer 00"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code(AdminAuthorization(std::string(32, 'u'), daemon_->pool_id())),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code(AdminAuthorization(token, daemon_->pool_id())), grpc::StatusCode::OK);
}

TEST_F(AdminServiceTest, RemovalEndsAtTheCallersDeadlineWithThePendingCounted) {
  MustStart();
  client_ = BoundClient();
  ScriptedStore::Options options = StoreOptions();
  options.obeys = false;
  ScriptedStore silent(options);
  ASSERT_TRUE(silent.Connect().ok());
  silent.Commit(0, Ids(0, 3), kChunk);
  ASSERT_TRUE(Eventually([&] { return client_->Present(Ids(0, 3)) == 3; }));
  admin::RemoveChunksRequest request;
  request.set_namespace_name("ns");
  for (const KeyId& id : Ids(0, 3)) request.add_ids(id.ToHex());
  admin::RemoveChunksReply reply;
  const grpc::Status status =
      Ask(&admin::Admin::Stub::RemoveChunks, request, &reply, "", absl::Milliseconds(500));
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.removed(), 0u);
  EXPECT_EQ(reply.pending(), 3u);
}

}  // namespace
}  // namespace cistern::master
