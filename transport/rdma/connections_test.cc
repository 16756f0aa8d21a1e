// Connections made and dropped, in order and without a word: nothing stays of them.

#include <dirent.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/eventually.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/io_context.h"
#include "transport/rdma/extent_store_testing.h"
#include "transport/rdma/raw_rdma_peer.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_testing.h"

namespace cistern::transport::rdma {
namespace {

// More than the receives that a loop of the server has: were each connection to keep one, nobody
// would be heard in the end.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CISTERN_SLOW_BUILD 1
#endif
#endif
#if defined(CISTERN_SLOW_BUILD)
constexpr int kConnections = 600;
#else
constexpr int kConnections = 1000;
#endif

int OpenDescriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(ConnectionsTest, ThousandMadeAndDroppedLeaveNothing) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  ASSERT_OK_AND_ASSIGN(const auto host, Host::Open({}));
  TestMemory extent(1 << 20);
  ASSERT_OK(extent.Register(host, MemoryRights::kLocal));
  ExtentStore store(&extent);
  LocalIdentity identity;
  identity.token = "a token of thirty-two bytes or so";
  identity.peer_id = "store-id-16bytes";
  RdmaServerOptions options;
  options.host = host;
  options.listen_addresses = {ports[0].address};
  options.identity = identity;
  ASSERT_OK_AND_ASSIGN(const auto server, ListenRdma(options, &store));
  ASSERT_OK_AND_ASSIGN(const auto io, IoContext::Create({}));
  RdmaChannelOptions channel;
  channel.host = host;
  channel.addresses = {ports[0].address};
  channel.port = server->port();
  channel.identity.token = identity.token;
  const auto one = [&](int i) {
    if (i % 4 == 0) {
      // Proven, in the middle of something, and gone without a word.
      auto peer = RawRdmaPeer::Connect(host, ports[0].address, server->port());
      ASSERT_OK(peer);
      ASSERT_OK((*peer)->Handshake(channel.identity));
      (*peer)->SendFrame(FrameType::kGet, 1, "get 65536");
      return;
    }
    const auto made = MakeRdmaChannel(io.get(), channel);
    ASSERT_OK(RoundTrip(*io, *made, "echo x"));
  };
  int descriptors = 0;
  for (int i = 0; i < kConnections; ++i) {
    // What is made once is there by then.
    if (i == 20) {
      ASSERT_TRUE(Eventually([&] { return server->stats().connections == 0; }));
      descriptors = OpenDescriptors();
    }
    ASSERT_NO_FATAL_FAILURE(one(i)) << i;
  }
  EXPECT_TRUE(Eventually([&] { return server->stats().connections == 0; }));
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_GE(server->stats().accepted, static_cast<uint64_t>(kConnections));
  const auto last = MakeRdmaChannel(io.get(), channel);
  EXPECT_OK(RoundTrip(*io, *last, "echo x"));
}

TEST(ConnectionsTest, TransfersCrossTheBordersOfRegions) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  HostOptions pieces;
  pieces.region_bytes = 3 * 4096;
  ASSERT_OK_AND_ASSIGN(const auto host, Host::Open(pieces));
  constexpr size_t kBytes = 300'000;
  TestMemory extent(1 << 20);
  ASSERT_OK(extent.Register(host, MemoryRights::kLocal));
  const std::string pattern = Pattern(3, kBytes);
  std::memcpy(extent.data(), pattern.data(), kBytes);
  ExtentStore store(&extent);
  LocalIdentity identity;
  identity.token = "a token of thirty-two bytes or so";
  identity.peer_id = "store-id-16bytes";
  RdmaServerOptions options;
  options.host = host;
  options.listen_addresses = {ports[0].address};
  options.identity = identity;
  ASSERT_OK_AND_ASSIGN(const auto server, ListenRdma(options, &store));
  ASSERT_OK_AND_ASSIGN(const auto io, IoContext::Create({}));
  RdmaChannelOptions channel;
  channel.host = host;
  channel.addresses = {ports[0].address};
  channel.port = server->port();
  channel.identity.token = identity.token;
  const auto made = MakeRdmaChannel(io.get(), channel);
  TestMemory own(1 << 20);
  ASSERT_OK(own.Register(host, MemoryRights::kRemote));
  MemorySink sink(own.data(), kBytes);
  TestCall call;
  call.sink = &sink;
  CallGroup group;
  made->Start(MakeSpec(FrameType::kGet, "get 300000", absl::Seconds(20)), &call, &group);
  io->Wait(group);
  ASSERT_OK(*call.status);
  EXPECT_EQ(std::memcmp(own.data(), pattern.data(), kBytes), 0);
}

}  // namespace
}  // namespace cistern::transport::rdma
