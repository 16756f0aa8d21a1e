#include "transport/handshake.h"

#include <string>

#include "gtest/gtest.h"

namespace cistern::transport {
namespace {

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

const PoolId kPool = PoolId::FromBytes("pool-id-16-bytes");
constexpr char kToken[] = "secret-token-secret-token-secret!";

LocalIdentity ClientIdentity() {
  LocalIdentity identity;
  identity.kind = wire::PEER_CLIENT;
  identity.token = kToken;
  identity.incarnation = 5;
  identity.boot_id = BootId::FromBytes("boot-id-16-bytes");
  return identity;
}

LocalIdentity ServerIdentity() {
  LocalIdentity identity;
  identity.kind = wire::PEER_STORE;
  identity.token = kToken;
  identity.pool_id = kPool;
  identity.peer_id = "store-id-16bytes";
  identity.incarnation = 9;
  identity.software_version = "v9";
  return identity;
}

ServerOffer Offer() {
  ServerOffer offer;
  offer.max_meta_bytes = 1000;
  offer.max_keys = 10;
  offer.max_payload_bytes = 1 << 30;
  offer.features = 0b0110;
  return offer;
}

// Made with Python: hmac.new(token, role + first + second + b"pool-id-16-bytes", sha256), with the
// nonces 10..1f (the caller's) and a0..af (the server's).
TEST(HandshakeProofTest, MatchesAnIndependentHmac) {
  const std::string c = FromHex("101112131415161718191a1b1c1d1e1f");
  const std::string s = FromHex("a0a1a2a3a4a5a6a7a8a9aaabacadaeaf");
  EXPECT_EQ(HandshakeProof(kToken, 'S', c, s, kPool),
            FromHex("123b3119ebd55180a4393f4342ab44142ea53e0d0cb332b1da2e75a7f35a007b"));
  EXPECT_EQ(HandshakeProof(kToken, 'C', s, c, kPool),
            FromHex("8b5415be566787a083d8fc5258d150ae746567c2d54393e5c7c476020f7ec422"));
  EXPECT_EQ(HandshakeProof("", 'S', c, s, kPool),
            FromHex("d9fe0b7b5980a227b56f4dff7f1a922084a3ea3eb6bb9c0f5929bdf04246bc05"));
}

TEST(HandshakeTest, BothSidesProveThemselvesAndLearnOfEachOther) {
  const LocalIdentity client_identity = ClientIdentity();
  const LocalIdentity server_identity = ServerIdentity();
  ClientHandshake client(client_identity, "store-id-16bytes", true, 0b0011);
  ServerHandshake server(server_identity, Offer());
  const auto ack = server.OnHello(client.MakeHello());
  ASSERT_TRUE(ack.ok()) << ack.status();
  const auto auth = client.OnHelloAck(*ack);
  ASSERT_TRUE(auth.ok()) << auth.status();
  EXPECT_TRUE(server.OnAuth(*auth).ok());

  EXPECT_EQ(client.peer().kind, wire::PEER_STORE);
  EXPECT_EQ(client.peer().pool_id, kPool);
  EXPECT_EQ(client.peer().peer_id, "store-id-16bytes");
  EXPECT_EQ(client.peer().incarnation, 9u);
  EXPECT_EQ(client.peer().features, 0b0010u);
  EXPECT_EQ(client.peer().max_meta_bytes, 1000u);
  EXPECT_EQ(client.peer().max_keys, 10u);
  EXPECT_EQ(client.peer().max_payload_bytes, 1u << 30);
  EXPECT_EQ(server.peer().kind, wire::PEER_CLIENT);
  EXPECT_EQ(server.peer().incarnation, 5u);
  EXPECT_EQ(server.peer().boot_id, client_identity.boot_id);
  EXPECT_EQ(server.peer().features, 0b0010u);
  EXPECT_TRUE(server.small_lane());
}

TEST(HandshakeTest, ServerWithAnotherTokenLearnsNothing) {
  const LocalIdentity client_identity = ClientIdentity();
  LocalIdentity server_identity = ServerIdentity();
  server_identity.token = "another token";
  ClientHandshake client(client_identity, "", false);
  ServerHandshake server(server_identity, Offer());
  const auto auth = client.OnHelloAck(*server.OnHello(client.MakeHello()));
  EXPECT_EQ(auth.status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(HandshakeTest, CallerWithoutTheTokenIsRefused) {
  const LocalIdentity client_identity = ClientIdentity();
  const LocalIdentity server_identity = ServerIdentity();
  ClientHandshake client(client_identity, "", false);
  ServerHandshake server(server_identity, Offer());
  const auto ack = server.OnHello(client.MakeHello());
  ASSERT_TRUE(ack.ok());
  wire::Auth auth;
  EXPECT_EQ(server.OnAuth(auth).code(), absl::StatusCode::kPermissionDenied);
  // The server's own proof sent back is no proof of the caller.
  auth.set_proof(ack->proof());
  EXPECT_EQ(server.OnAuth(auth).code(), absl::StatusCode::kPermissionDenied);
}

TEST(HandshakeTest, OldConversationCannotBeReplayed) {
  const LocalIdentity client_identity = ClientIdentity();
  const LocalIdentity server_identity = ServerIdentity();
  ClientHandshake client(client_identity, "", false);
  ServerHandshake server(server_identity, Offer());
  const wire::Hello hello = client.MakeHello();
  const auto auth = client.OnHelloAck(*server.OnHello(hello));
  ASSERT_TRUE(auth.ok());
  ServerHandshake again(server_identity, Offer());
  ASSERT_TRUE(again.OnHello(hello).ok());
  EXPECT_EQ(again.OnAuth(*auth).code(), absl::StatusCode::kPermissionDenied);
}

TEST(HandshakeTest, RefusalNamesBothVersionRanges) {
  const LocalIdentity client_identity = ClientIdentity();
  const LocalIdentity server_identity = ServerIdentity();
  ClientHandshake client(client_identity, "", false, 0, {3, 5});
  ServerHandshake server(server_identity, Offer());
  const absl::Status status = server.OnHello(client.MakeHello()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "no common protocol version: the caller speaks 3 to 5, this server (v9) 1");
}

TEST(HandshakeTest, HighestCommonVersionIsChosen) {
  const LocalIdentity client_identity = ClientIdentity();
  const LocalIdentity server_identity = ServerIdentity();
  ClientHandshake client(client_identity, "", false, 0, {1, 4});
  ServerOffer offer = Offer();
  offer.versions = {2, 3};
  ServerHandshake server(server_identity, offer);
  const auto ack = server.OnHello(client.MakeHello());
  ASSERT_TRUE(ack.ok()) << ack.status();
  EXPECT_EQ(ack->major(), 3u);
  EXPECT_TRUE(client.OnHelloAck(*ack).ok());
}

TEST(HandshakeTest, AnotherStoreIsRefusedAfterItsProof) {
  const LocalIdentity client_identity = ClientIdentity();
  const LocalIdentity server_identity = ServerIdentity();
  ClientHandshake client(client_identity, "some-other-store", false);
  ServerHandshake server(server_identity, Offer());
  const absl::Status status = client.OnHelloAck(*server.OnHello(client.MakeHello())).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "another store answers at this address");
}

TEST(HandshakeTest, MalformedMessagesAreRefused) {
  const LocalIdentity client_identity = ClientIdentity();
  const LocalIdentity server_identity = ServerIdentity();
  ServerHandshake server(server_identity, Offer());
  EXPECT_EQ(server.OnHello(wire::Hello()).status().code(), absl::StatusCode::kInvalidArgument);
  ClientHandshake client(client_identity, "", false);
  EXPECT_EQ(client.OnHelloAck(wire::HelloAck()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cistern::transport
