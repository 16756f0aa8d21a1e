// Messages of wire format 1 must be understood for ever, and fields that a newer peer adds must be
// ignored. The fixtures were made with protoc (see proto/fixtures/README.md).
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "proto/data.pb.h"
#include "proto/handshake.pb.h"
#include "proto/master.pb.h"
#include "proto/store.pb.h"
#include "proto/types.pb.h"

namespace cistern::wire {
namespace {

std::string Fixture(const std::string& name) {
  std::ifstream file("proto/fixtures/" + name + ".binpb", std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// What a newer peer might add, by the protobuf encoding: field 1000 as a varint (tag 1000 << 3 =
// 8000 = c0 3e), field 1001 as 3 bytes (tag 8010 = ca 3e), field 1002 as 8 bytes (8017 = d1 3e).
std::string WithUnknownFields(std::string bytes) {
  return bytes + std::string("\xc0\x3e\x96\x01", 4) + std::string("\xca\x3e\x03xyz", 6) +
         std::string("\xd1\x3e\x01\x02\x03\x04\x05\x06\x07\x08", 10);
}

// The fixture alone, and with unknown fields: both must read the same.
template <typename Message, typename Check>
void Read(const std::string& name, Check check) {
  for (const bool newer : {false, true}) {
    SCOPED_TRACE(name + (newer ? " from a newer peer" : ""));
    const std::string bytes = Fixture(name);
    Message message;
    ASSERT_TRUE(message.ParseFromString(newer ? WithUnknownFields(bytes) : bytes));
    check(message);
    if (!newer) {
      EXPECT_EQ(message.SerializeAsString(), bytes);
    }
  }
}

TEST(FixturesTest, Hello) {
  Read<Hello>("Hello", [](const Hello& m) {
    EXPECT_EQ(m.major_min(), 1u);
    EXPECT_EQ(m.major_max(), 3u);
    EXPECT_EQ(m.features(), 5u);
    EXPECT_EQ(m.kind(), PEER_CLIENT);
    EXPECT_EQ(m.incarnation(), 0x0123456789abcdefu);
    EXPECT_EQ(m.boot_id(), std::string(16, 'b'));
    EXPECT_EQ(m.nonce(), std::string(16, 'n'));
    EXPECT_EQ(m.expected_peer_id(), std::string(16, 'p'));
    EXPECT_TRUE(m.small_lane());
  });
}

TEST(FixturesTest, HelloAck) {
  Read<HelloAck>("HelloAck", [](const HelloAck& m) {
    EXPECT_EQ(m.major(), 1u);
    EXPECT_EQ(m.kind(), PEER_STORE);
    EXPECT_EQ(m.incarnation(), 7u);
    EXPECT_EQ(m.pool_id(), std::string(16, 'P'));
    EXPECT_EQ(m.peer_id(), std::string(16, 'S'));
    EXPECT_EQ(m.proof(), "01234567890123456789012345678901");
    EXPECT_EQ(m.max_meta_bytes(), 1048576u);
    EXPECT_EQ(m.max_keys(), 32768u);
    EXPECT_EQ(m.max_payload_bytes(), 4294967296u);
    EXPECT_EQ(m.software_version(), "0.1.0");
  });
}

TEST(FixturesTest, PutRequest) {
  Read<PutRequest>("PutRequest", [](const PutRequest& m) {
    EXPECT_EQ(m.ns_ref(), 2u);
    EXPECT_EQ(m.ids(), std::string(16, 'a') + std::string(16, 'b'));
    EXPECT_EQ(m.shards(), std::string("\0\0\1\0", 4));
    EXPECT_EQ(m.lengths(), std::string("\0\x10\0\0\0\0\1\0", 8));  // 4096, 65536
    EXPECT_EQ(m.part_bytes(), 4096u);
    EXPECT_EQ(m.digest(), DIGEST_PRODUCER);
    EXPECT_EQ(m.expiry_unix_ms(), 1'700'000'000'000u);
    EXPECT_EQ(m.deadline_ms(), 5000u);
    EXPECT_EQ(m.priority(), 1u);
    EXPECT_TRUE(m.payload_inline());
    EXPECT_FALSE(m.replace());
  });
}

TEST(FixturesTest, PutDone) {
  Read<PutDone>("PutDone", [](const PutDone& m) {
    EXPECT_EQ(m.statuses(), std::string("\0\1\4", 3));
    EXPECT_EQ(m.versions(), std::string("\1", 1) + std::string(23, '\0'));
    EXPECT_EQ(m.message(), "no room");
  });
}

TEST(FixturesTest, GetRequest) {
  Read<GetRequest>("GetRequest", [](const GetRequest& m) {
    EXPECT_EQ(m.ns_ref(), 1u);
    EXPECT_EQ(m.order(), PART_MAJOR);
    EXPECT_EQ(m.first_part(), 3u);
    EXPECT_EQ(m.part_count(), 2u);
    EXPECT_EQ(m.target_lengths(), std::string("\0\x10\0\0", 4));
    EXPECT_EQ(m.notify_every(), 4u);
    EXPECT_EQ(m.deadline_ms(), 250u);
    EXPECT_TRUE(m.any_length());
  });
}

TEST(FixturesTest, GetHead) {
  Read<GetHead>("GetHead", [](const GetHead& m) {
    EXPECT_EQ(m.statuses(), std::string("\0\3", 2));
    EXPECT_EQ(m.lengths(), std::string("\0\x10\0\0\0\0\0\0", 8));
    EXPECT_EQ(m.roots(), "\x11\x22\x33\x44\x55\x66\x77\x88" + std::string(8, '\0'));
    EXPECT_EQ(m.versions(), "\x09" + std::string(15, '\0'));
    EXPECT_EQ(m.payload_bytes(), 4104u);
  });
}

TEST(FixturesTest, LookupRequest) {
  Read<LookupRequest>("LookupRequest", [](const LookupRequest& m) {
    EXPECT_EQ(m.map_version(), 1u);
    EXPECT_EQ(m.directory_version(), 9u);
    EXPECT_EQ(m.ns_ref(), 4u);
    EXPECT_EQ(m.ids().size(), 32u);
    EXPECT_EQ(m.shard_count(), 2u);
    EXPECT_TRUE(m.sparse());
    EXPECT_EQ(m.lease_ms(), 10'000u);
    EXPECT_FALSE(m.no_lease());
    EXPECT_EQ(m.deadline_ms(), 100u);
    EXPECT_TRUE(m.want_lengths());
  });
}

TEST(FixturesTest, LookupReply) {
  Read<LookupReply>("LookupReply", [](const LookupReply& m) {
    EXPECT_EQ(m.leading_run(), 1u);
    EXPECT_EQ(m.present(), "\1");
    EXPECT_EQ(m.stores(), std::string("\0\0\3\0\xff\xff\xff\xff", 8));
    EXPECT_EQ(m.replica_columns(), 1u);
    EXPECT_EQ(m.lease_id(), std::string(16, 'L'));
    EXPECT_EQ(m.lease_ms(), 10'000u);
    EXPECT_EQ(m.leased_keys(), 1u);
    EXPECT_TRUE(m.lease_shortened());
  });
}

TEST(FixturesTest, PlaceRequest) {
  Read<PlaceRequest>("PlaceRequest", [](const PlaceRequest& m) {
    EXPECT_EQ(m.lengths(), std::string("\0\0\1\0", 4));
    EXPECT_EQ(m.affinity(), 0x1122334455667788u);
    EXPECT_EQ(m.host_boot_id(), std::string(16, 'b'));
    EXPECT_EQ(m.operation_id(), std::string(16, 'o'));
  });
}

TEST(FixturesTest, NamespaceInfo) {
  Read<NamespaceInfo>("NamespaceInfo", [](const NamespaceInfo& m) {
    EXPECT_EQ(m.id(), std::string(16, 'i'));
    EXPECT_EQ(m.name(), "llama-70b");
    EXPECT_EQ(m.fingerprint(), "rev=1");
    EXPECT_EQ(m.options().verify(), VERIFY_SAMPLED);
    EXPECT_EQ(m.options().ttl_ms(), 60'000u);
    EXPECT_EQ(m.options().part_bytes(), 65'536u);
    EXPECT_EQ(m.options().digest(), DIGEST_STORE);
    EXPECT_TRUE(m.options().digest_set());
    EXPECT_FALSE(m.options().mutable_chunks());
    EXPECT_TRUE(m.options().keep_keys());
  });
}

TEST(FixturesTest, DeltaOfASession) {
  Read<StoreMessage>("StoreMessage", [](const StoreMessage& m) {
    ASSERT_EQ(m.kind_case(), StoreMessage::kDelta);
    const Delta& d = m.delta();
    EXPECT_EQ(d.seq_first(), 0x1'0000'0001u);
    ASSERT_EQ(d.new_namespaces_size(), 1);
    EXPECT_EQ(d.new_namespaces(0).name(), "n");
    EXPECT_EQ(d.ids().size(), 32u);
    EXPECT_EQ(d.versions(), "\5" + std::string(7, '\0') + "\6" + std::string(7, '\0'));
    EXPECT_EQ(d.tiers(), std::string("\1\0", 2));
    EXPECT_EQ(d.lengths(), std::string("\0\x10\0\0\0\x20\0\0", 8));
    EXPECT_EQ(d.namespaces(), std::string(4, '\0'));
    EXPECT_EQ(d.causes(), "\1\2");
  });
}

TEST(FixturesTest, EvictCommand) {
  Read<MasterMessage>("MasterMessage", [](const MasterMessage& m) {
    ASSERT_EQ(m.kind_case(), MasterMessage::kEvict);
    EXPECT_EQ(m.evict().command(), 12u);
    EXPECT_EQ(m.evict().epoch(), 3u);
    EXPECT_EQ(m.evict().shards(), std::string("\2\0", 2));
    EXPECT_EQ(m.evict().versions(), "\5" + std::string(7, '\0'));
    EXPECT_EQ(m.evict().tier(), 1u);
    EXPECT_EQ(m.evict().cause(), CAUSE_EVICT_WATERMARK);
  });
}

// A kind of message that only a newer peer knows reads as no kind at all, and is skipped.
TEST(FixturesTest, UnknownKindOfSessionMessageIsNoKind) {
  MasterMessage message;
  ASSERT_TRUE(message.ParseFromString(WithUnknownFields("")));
  EXPECT_EQ(message.kind_case(), MasterMessage::KIND_NOT_SET);
}

}  // namespace
}  // namespace cistern::wire
