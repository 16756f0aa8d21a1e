// Peers that want more than they may, or send what nobody should: each is refused and counted, and
// the store's memory, as others', is as it was.

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

using testing::AnyOf;
using testing::HasSubstr;

constexpr uint32_t kBytes = 64 << 10;

class HostilePeerTest : public testing::Test {
 protected:
  // The store, and an honest client. Ends in a skip where there is no device.
  void Start() {
    std::vector<ChosenPort> ports;
    CISTERN_TEST_PORTS_OR_SKIP(ports);
    address_ = ports[0].address;
    ASSERT_OK_AND_ASSIGN(store_host_, Host::Open({}));
    ASSERT_OK_AND_ASSIGN(client_host_, Host::Open({}));
    ASSERT_OK(extent_.Register(store_host_, MemoryRights::kLocal));
    extent_.Fill('e');
    identity_.token = "a token of thirty-two bytes or so";
    identity_.peer_id = "store-id-16bytes";
    RdmaServerOptions server;
    server.host = store_host_;
    server.listen_addresses = {address_};
    server.identity = identity_;
    ASSERT_OK_AND_ASSIGN(server_, ListenRdma(server, &store_));
    ASSERT_OK_AND_ASSIGN(io_, IoContext::Create({}));
    RdmaChannelOptions channel;
    channel.host = client_host_;
    channel.addresses = {address_};
    channel.port = server_->port();
    channel.identity.token = identity_.token;
    honest_ = MakeRdmaChannel(io_.get(), channel);
    ASSERT_OK(RoundTrip(*io_, *honest_, "echo x"));
  }
  void TearDown() override {
    honest_.reset();
    io_.reset();
    if (server_ != nullptr) server_->Stop();
  }

  std::unique_ptr<RawRdmaPeer> Peer(bool proven = true) {
    auto peer = RawRdmaPeer::Connect(client_host_, address_, server_->port());
    EXPECT_OK(peer);
    if (!peer.ok()) return nullptr;
    LocalIdentity identity;
    identity.token = identity_.token;
    if (proven) {
      EXPECT_OK((*peer)->Handshake(identity));
    }
    return *std::move(peer);
  }
  // The server has ended the connection for what came by it, and serves others.
  void ExpectCutForIt(RawRdmaPeer& peer, const std::string& what) {
    EXPECT_TRUE(peer.WaitClosed()) << what;
    ++cut_;
    EXPECT_TRUE(Eventually([&] { return server_->stats().protocol_errors >= cut_; })) << what;
    EXPECT_EQ(server_->stats().protocol_errors, cut_) << what;
    EXPECT_OK(RoundTrip(*io_, *honest_, "echo x")) << what;
  }
  // Asks for the extent and answers the offer with `target`.
  void GetInto(const Note& target, const std::string& what) {
    const auto peer = Peer();
    ASSERT_NE(peer, nullptr);
    ASSERT_TRUE(peer->SendFrame(FrameType::kGet, 1, absl::StrCat("get ", kBytes)));
    ASSERT_TRUE(peer->Receive().has_value());  // GetHead
    ASSERT_TRUE(peer->Receive().has_value());  // Data
    const auto offer = peer->TakeRecord();
    ASSERT_TRUE(offer.has_value());
    ASSERT_EQ(offer->bytes, kBytes);
    EXPECT_TRUE(peer->SendMessage("", {target}));
    ExpectCutForIt(*peer, what);
  }
  // Offers memory for a put that the store then reads.
  void PutFrom(uint32_t key, uint64_t address, const std::string& what) {
    const auto peer = Peer();
    ASSERT_NE(peer, nullptr);
    ASSERT_TRUE(peer->SendFrame(FrameType::kPut, 1, absl::StrCat("put ", kBytes), kBytes,
                                RecordBytes(RecordKind::kOffer, kBytes, key, address)));
    ExpectCutForIt(*peer, what);
    EXPECT_TRUE(extent_.Is('e')) << what;
  }

  std::string address_;
  std::shared_ptr<Host> store_host_;
  std::shared_ptr<Host> client_host_;
  TestMemory extent_{1 << 20};
  ExtentStore store_{&extent_};
  LocalIdentity identity_;
  std::unique_ptr<WireServer> server_;
  std::unique_ptr<IoContext> io_;
  std::unique_ptr<Channel> honest_;
  uint64_t cut_ = 0;
};

// Whatever key it names: the store's queue pairs carry no remote rights, nor does its memory.
TEST_F(HostilePeerTest, NobodyReachesIntoTheStoresMemory) {
  Start();
  if (IsSkipped() || HasFatalFailure()) return;
  TestMemory own(kBytes);
  ASSERT_OK(own.Register(client_host_, MemoryRights::kRemote));
  own.Fill('o');
  const MemoryKeys keys = extent_.keys(address_);
  const ibv_sge local = {own.address(), kBytes, own.keys(address_).local_key};
  for (const uint32_t key : {keys.remote_key, keys.local_key, keys.local_key ^ 0xFFu}) {
    for (const OpKind kind : {OpKind::kWrite, OpKind::kRead}) {
      const auto peer = Peer();
      ASSERT_NE(peer, nullptr);
      // Which of the two depends on the device; neither is a success, nor silence.
      const absl::Status ended = peer->Execute(kind, local, extent_.address(), key);
      EXPECT_FALSE(ended.ok());
      EXPECT_THAT(std::string(ended.message()),
                  AnyOf(HasSubstr("remote access error"), HasSubstr("remote invalid request")));
    }
  }
  EXPECT_TRUE(extent_.Is('e'));
  EXPECT_TRUE(own.Is('o'));
  EXPECT_OK(RoundTrip(*io_, *honest_, "echo x"));
}

TEST_F(HostilePeerTest, TargetsThatAreNotOpenToTheStoreAreRefused) {
  Start();
  if (IsSkipped() || HasFatalFailure()) return;
  TestMemory own(2 * kBytes);
  ASSERT_OK(own.Register(client_host_, MemoryRights::kRemote));
  own.Fill('o');
  TestMemory read_only(kBytes);
  ASSERT_OK(read_only.Register(client_host_, MemoryRights::kRemoteRead));
  read_only.Fill('r');
  // Another client's, who has opened it to its own stores.
  ASSERT_OK_AND_ASSIGN(const auto victim_host, Host::Open({}));
  TestMemory victim(kBytes);
  ASSERT_OK(victim.Register(victim_host, MemoryRights::kRemote));
  victim.Fill('v');
  uint32_t gone_key = 0;
  TestMemory gone(kBytes);
  {
    ASSERT_OK(client_host_->AddMemory(gone.data(), gone.size(), MemoryRights::kRemote));
    MemoryKeys keys;
    for (const auto& device : client_host_->devices()) {
      if (device->addresses[0] == address_) {
        ASSERT_TRUE(device->memory.Find(gone.data(), MemoryRights::kRemote, &keys));
      }
    }
    gone_key = keys.remote_key;
    client_host_->RemoveMemory(gone.data(), gone.size());
  }
  gone.Fill('g');
  const auto target = [](uint32_t key, uint64_t address) {
    return Note{NoteKind::kTarget, kBytes, key, address};
  };
  const uint32_t own_key = own.keys(address_).remote_key;
  GetInto(target(own_key ^ 0xFF, own.address()), "a key that is none");
  GetInto(target(own_key, own.address() + kBytes + 1), "past the end");
  GetInto(target(own_key, own.address() - 1), "before the begin");
  GetInto(target(own_key, UINT64_MAX - 100), "around the end of the address space");
  GetInto(target(read_only.keys(address_).remote_key, read_only.address()), "memory to be read");
  GetInto(target(victim.keys(address_).remote_key, victim.address()), "another client's memory");
  GetInto(target(gone_key, gone.address()), "memory that was registered");
  GetInto({NoteKind::kTarget, kBytes + 1, own_key, own.address()}, "more than was offered");
  EXPECT_TRUE(own.Is('o'));
  EXPECT_TRUE(read_only.Is('r'));
  EXPECT_TRUE(victim.Is('v'));
  EXPECT_TRUE(gone.Is('g'));
  EXPECT_TRUE(extent_.Is('e'));
}

TEST_F(HostilePeerTest, OffersThatAreNotOpenToTheStoreAreRefused) {
  Start();
  if (IsSkipped() || HasFatalFailure()) return;
  TestMemory own(2 * kBytes);
  ASSERT_OK(own.Register(client_host_, MemoryRights::kRemote));
  own.Fill('o');
  TestMemory write_only(kBytes);
  ASSERT_OK(write_only.Register(client_host_, MemoryRights::kRemoteWrite));
  ASSERT_OK_AND_ASSIGN(const auto victim_host, Host::Open({}));
  TestMemory victim(kBytes);
  ASSERT_OK(victim.Register(victim_host, MemoryRights::kRemote));
  victim.Fill('v');
  const uint32_t own_key = own.keys(address_).remote_key;
  PutFrom(own_key ^ 0xFF, own.address(), "a key that is none");
  PutFrom(own_key, own.address() + kBytes + 1, "past the end");
  PutFrom(own_key, own.address() - 1, "before the begin");
  PutFrom(own_key, UINT64_MAX - 100, "around the end of the address space");
  PutFrom(write_only.keys(address_).remote_key, write_only.address(), "memory to be written");
  PutFrom(victim.keys(address_).remote_key, victim.address(), "another client's memory");
  EXPECT_TRUE(Eventually([&] { return store_.not_received == 6; }));
  EXPECT_EQ(store_.received, 0);
}

TEST_F(HostilePeerTest, MessagesAgainstTheRulesEndTheConnection) {
  Start();
  if (IsSkipped() || HasFatalFailure()) return;
  struct Case {
    const char* what;
    std::function<void(RawRdmaPeer&)> act;
  };
  const auto note = [](int kind, uint32_t bytes) {
    return std::vector<Note>{Note{static_cast<NoteKind>(kind), bytes, 1, 4096}};
  };
  const std::string put = absl::StrCat("put ", kBytes);
  const std::vector<Case> cases = {
      {"nothing", [](RawRdmaPeer& p) { p.Send(""); }},
      {"no header", [](RawRdmaPeer& p) { p.Send("GET / HTTP/1.1\r\n\r\n"); }},
      {"zeros", [](RawRdmaPeer& p) { p.Send(std::string(kMessageBytes, '\0')); }},
      {"a length that is not its own",
       [](RawRdmaPeer& p) {
         std::string message(kMessageHeaderBytes, '\0');
         EncodeMessageHeader({.stream_bytes = 100}, reinterpret_cast<uint8_t*>(message.data()));
         p.Send(message + "x");
       }},
      {"a note of no kind", [&](RawRdmaPeer& p) { p.SendMessage("", note(7, 1)); }},
      {"a note of no bytes", [&](RawRdmaPeer& p) { p.SendMessage("", note(2, 0)); }},
      {"a store's note", [&](RawRdmaPeer& p) { p.SendMessage("", note(3, 1)); }},
      {"a target for nothing", [&](RawRdmaPeer& p) { p.SendMessage("", note(1, 1)); }},
      {"credits that were not used", [](RawRdmaPeer& p) { p.SendMessage("", {}, 100); }},
      {"more of the other credits", [](RawRdmaPeer& p) { p.SendMessage("", {}, 0, 100); }},
      {"no frame", [](RawRdmaPeer& p) { p.SendMessage(std::string(200, 'f')); }},
      {"no record",
       [&](RawRdmaPeer& p) {
         p.SendFrame(FrameType::kPut, 1, put, kBytes, std::string(kRecordBytes, 'r'));
       }},
      {"a record of no kind",
       [&](RawRdmaPeer& p) {
         p.SendFrame(FrameType::kPut, 1, put, kBytes,
                     RecordBytes(static_cast<RecordKind>(9), kBytes));
       }},
      {"more than the frame's payload",
       [&](RawRdmaPeer& p) {
         p.SendFrame(FrameType::kPut, 1, put, kBytes, RecordBytes(RecordKind::kRaw, kBytes + 1));
       }},
      {"more than the window",
       [&](RawRdmaPeer& p) {
         p.SendFrame(FrameType::kPut, 1, "pause 1000", uint64_t{1} << 30,
                     RecordBytes(RecordKind::kOffer, 8 << 20));
       }},
      {"more messages than credits",
       [&](RawRdmaPeer& p) {
         // The server reads none of it while nobody wants the payload.
         p.SendFrame(FrameType::kPut, 1, "pause 1000", 1 << 20,
                     RecordBytes(RecordKind::kRaw, 1 << 20));
         for (uint32_t i = 0; i < 4 * kStreamCredits; ++i) {
           if (!p.SendMessage(std::string(4000, 'p'))) return;
         }
       }},
  };
  for (const Case& one : cases) {
    const auto peer = Peer();
    ASSERT_NE(peer, nullptr);
    one.act(*peer);
    ExpectCutForIt(*peer, one.what);
  }
  EXPECT_TRUE(extent_.Is('e'));
}

TEST_F(HostilePeerTest, WhoDoesNotGreetIsNotConnected) {
  Start();
  if (IsSkipped() || HasFatalFailure()) return;
  for (const char* greeting : {"hello", "GET / HTTP/1.1, a text as long as a greeting is"}) {
    const auto peer = RawRdmaPeer::Connect(client_host_, address_, server_->port(), greeting);
    EXPECT_THAT(peer, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("greeting")));
  }
  EXPECT_TRUE(Eventually([&] { return server_->stats().refused == 2; }));
  EXPECT_OK(RoundTrip(*io_, *honest_, "echo x"));
}

TEST_F(HostilePeerTest, DamagedMessagesEndNothingButTheirConnection) {
  Start();
  if (IsSkipped() || HasFatalFailure()) return;
  TestMemory own(kBytes);
  ASSERT_OK(own.Register(client_host_, MemoryRights::kRemote));
  std::mt19937 random(20261130);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    const auto peer = Peer();
    ASSERT_NE(peer, nullptr);
    for (int i = 0; i < 8; ++i) {
      std::string message(kMessageHeaderBytes + random() % 200, '\0');
      for (char& c : message) c = static_cast<char>(random());
      MessageHeader header;
      header.notes = static_cast<uint16_t>(random() % 3);
      if (message.size() < kMessageHeaderBytes + header.notes * kNoteBytes) header.notes = 0;
      header.stream_bytes =
          static_cast<uint32_t>(message.size() - kMessageHeaderBytes - header.notes * kNoteBytes);
      header.stream_credits = static_cast<uint16_t>(random() % 8 == 0 ? random() : 0);
      EncodeMessageHeader(header, reinterpret_cast<uint8_t*>(message.data()));
      for (uint16_t n = 0; n < header.notes; ++n) {
        EncodeNote(
            {static_cast<NoteKind>(1 + random() % 3), static_cast<uint32_t>(random() % 1000),
             own.keys(address_).remote_key, own.address()},
            reinterpret_cast<uint8_t*>(message.data()) + message.size() - (n + 1u) * kNoteBytes);
      }
      if (!peer->Send(message)) break;
    }
    if (round % 2 == 0) peer->Disconnect();
  }
  EXPECT_OK(RoundTrip(*io_, *honest_, "echo x"));
  EXPECT_TRUE(extent_.Is('e'));
}

}  // namespace
}  // namespace cistern::transport::rdma
