// A whole store in this process, against a real gRPC session and real connections.
#include "store/daemon.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/columns.h"
#include "base/config.h"
#include "base/digest.h"
#include "base/fault.h"
#include "base/key_hash.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/testing/scripted_master.h"
#include "store/testing/test_peer.h"

namespace cistern::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using transport::FrameType;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

// The folders and the master outlive each store that a test starts in them.
class StoreDaemonTest : public testing::Test {
 protected:
  StoreDaemonTest() : master_(PoolId::FromBytes("pool-of-the-test"), kToken) {
    WriteFile(dir_ / "token", kToken, 0600);
  }

  config::StoreConfig Config(const std::string& segment_size = "8MiB") {
    config::StoreConfig config;
    const std::string toml =
        "data_port = 0\nhttp_port = 0\ndata_dir = \"" + (dir_ / "data") + "\"\nsegment_dir = \"" +
        (dir_ / "segments") + "\"\nmaster_address = \"" + master_.address() +
        "\"\npool_token_file = \"" + (dir_ / "token") + "\"\nexpected_chunk = \"4KiB\"\n" +
        "[[segment]]\nsize = \"" + segment_size + "\"\n";
    const auto loaded = LoadConfig(toml, "test.toml", {}, &config);
    EXPECT_OK(loaded.status());
    return config;
  }

  void StartStore(const std::string& segment_size = "8MiB") {
    const int before = master_.sessions();
    auto started = StoreDaemon::Start(Config(segment_size), Clock::Real(), [] { return false; });
    ASSERT_OK(started.status());
    store_ = *std::move(started);
    ASSERT_TRUE(master_.WaitFor([&] { return master_.sessions() > before; }));
    peer_ = std::make_unique<TestPeer>(store_->data_port(), kToken);
    ASSERT_OK_AND_ASSIGN(ns_, peer_->Bind("model", "fp"));
  }
  void StopStore() {
    peer_.reset();
    store_.reset();
  }

  static TestChunk Chunk(uint8_t n, size_t bytes) {
    TestChunk chunk;
    chunk.id.bytes[15] = n;
    chunk.id.bytes[0] = static_cast<uint8_t>(n * 37);
    chunk.bytes = PatternBytes(n, bytes);
    return chunk;
  }
  bool Told(const TestChunk& chunk, uint8_t tiers) {
    return master_.WaitFor([&] {
      const auto it = master_.chunks().find({chunk.id, chunk.shard});
      return it != master_.chunks().end() && it->second.tiers == tiers;
    });
  }
  // No extent is in use, by the store's own account.
  bool NothingHeld() {
    const uint64_t seen = master_.heartbeats();
    return master_.WaitFor([&] {
      return master_.heartbeats() > seen && master_.heartbeat().tiers(0).used_bytes() == 0;
    });
  }

  // Behind the store's back: the segment is a file.
  void FlipByteInSegment(const TestChunk& chunk, size_t offset) {
    const std::string path = dir_ / "segments/dram-0";
    const size_t at = ReadFile(path).find(chunk.bytes);
    ASSERT_NE(at, std::string::npos);
    const int fd = open(path.c_str(), O_WRONLY);
    const char flipped = static_cast<char>(chunk.bytes[offset] ^ 1);
    EXPECT_EQ(pwrite(fd, &flipped, 1, static_cast<off_t>(at + offset)), 1);
    close(fd);
  }
  wire::GetRequest RangeRequest(const TestChunk& chunk, uint64_t offset, uint32_t bytes) const {
    wire::GetRequest request;
    request.set_ns_ref(ns_);
    request.set_ids(std::string(chunk.id.view()));
    request.set_range_offsets(std::string(reinterpret_cast<const char*>(&offset), 8));
    request.set_range_lengths(std::string(reinterpret_cast<const char*>(&bytes), 4));
    request.set_target_lengths(std::string(reinterpret_cast<const char*>(&bytes), 4));
    request.set_deadline_ms(5'000);
    return request;
  }

  TempDir dir_;
  ScriptedMaster master_;
  std::unique_ptr<StoreDaemon> store_;
  std::unique_ptr<TestPeer> peer_;
  uint32_t ns_ = 0;
};

std::vector<int> Statuses(const std::string& column) {
  return std::vector<int>(column.begin(), column.end());
}

TEST_F(StoreDaemonTest, ServesWhatWasPutInLine) {
  StartStore();
  const std::vector<TestChunk> chunks = {Chunk(1, 4096), Chunk(2, 70'000)};
  EXPECT_THAT(Statuses(peer_->Put(ns_, chunks).statuses()), ElementsAre(0, 0));
  const TestPeer::Got got = peer_->Get(ns_, chunks);
  ASSERT_OK(got.status);
  EXPECT_THAT(Statuses(got.head.statuses()), ElementsAre(0, 0));
  // Digests come before each chunk's bytes; both chunks have one part.
  ASSERT_EQ(got.payload.size(), 8 + 4096 + 8 + 70'000u);
  EXPECT_EQ(got.payload.substr(8, 4096), chunks[0].bytes);
  EXPECT_EQ(got.payload.substr(8 + 4096 + 8), chunks[1].bytes);
  EXPECT_TRUE(Told(chunks[0], wire::TIER_DRAM));
  EXPECT_TRUE(Told(chunks[1], wire::TIER_DRAM));
  // The heartbeat's counters: what the get sent, digests included.
  EXPECT_TRUE(master_.WaitFor(
      [&] { return master_.heartbeat().counters().get_bytes() == 8 + 4096 + 8 + 70'000u; }));
  EXPECT_EQ(master_.heartbeat().counters().get_hits(), 2u);
  EXPECT_EQ(master_.heartbeat().counters().put_chunks(), 2u);
}

TEST_F(StoreDaemonTest, ServesWhatWasPutAfterReady) {
  StartStore();
  const TestChunk chunk = Chunk(3, (2 << 20) + 4096 + 1);  // parts of 1 MiB: three
  EXPECT_THAT(Statuses(peer_->Put(ns_, {chunk}, /*in_line=*/false).statuses()), ElementsAre(0));
  const TestPeer::Got got = peer_->Get(ns_, {chunk});
  ASSERT_OK(got.status);
  ASSERT_EQ(got.payload.size(), 3 * 8 + chunk.bytes.size());
  EXPECT_EQ(got.payload.substr(24), chunk.bytes);
  uint64_t first_digest;
  memcpy(&first_digest, got.payload.data(), 8);
  EXPECT_EQ(first_digest, DigestOf(chunk.bytes.data(), 1 << 20));
}

TEST_F(StoreDaemonTest, PresentChunksAreNotSentAgain) {
  StartStore();
  const TestChunk old_one = Chunk(1, 8192);
  const TestChunk new_one = Chunk(2, 8192);
  peer_->Put(ns_, {old_one});
  const AnswerFrames answer = peer_->Call(
      FrameType::kPut, peer_->PutMeta(ns_, {old_one, new_one}, false).SerializeAsString(), {},
      TestPeer::Stream(new_one));
  ASSERT_OK(answer.status);
  ASSERT_THAT(answer.types, ElementsAre(FrameType::kPutReady, FrameType::kPutDone));
  wire::PutReady ready;
  ASSERT_TRUE(ready.ParseFromString(answer.metas[0]));
  EXPECT_EQ(ready.payload_bytes(), 8192u + 8);
  wire::PutDone done;
  ASSERT_TRUE(done.ParseFromString(answer.metas[1]));
  EXPECT_THAT(Statuses(done.statuses()), ElementsAre(wire::CHUNK_PRESENT, wire::CHUNK_OK));
}

TEST_F(StoreDaemonTest, ChunkTwiceInABatchIsPutOnceAndBothAreAnswered) {
  StartStore();
  for (const bool in_line : {true, false}) {
    TestChunk other = Chunk(in_line ? 7 : 8, 8192);
    // Out of line only the first is asked for.
    std::string payload = TestPeer::Stream(other);
    const AnswerFrames answer =
        in_line ? peer_->Call(FrameType::kPut,
                              peer_->PutMeta(ns_, {other, other}, true).SerializeAsString(),
                              payload + payload)
                : peer_->Call(FrameType::kPut,
                              peer_->PutMeta(ns_, {other, other}, false).SerializeAsString(), {},
                              payload);
    ASSERT_OK(answer.status);
    wire::PutDone done;
    ASSERT_TRUE(done.ParseFromString(answer.metas.back()));
    EXPECT_THAT(Statuses(done.statuses()), ElementsAre(0, 0)) << in_line;
    EXPECT_EQ(peer_->Get(ns_, {other}).payload.substr(8), other.bytes);
  }
}

TEST_F(StoreDaemonTest, RecordsOfABatchComeLastKeyFirst) {
  StartStore();
  const std::vector<TestChunk> chunks = {Chunk(1, 4096), Chunk(2, 4096), Chunk(3, 4096)};
  peer_->Put(ns_, chunks);
  ASSERT_TRUE(Told(chunks[0], wire::TIER_DRAM));
  EXPECT_THAT(master_.arrivals(), ElementsAre(chunks[2].id, chunks[1].id, chunks[0].id));
}

TEST_F(StoreDaemonTest, WrongDigestIsRefusedAndLeavesNothing) {
  StartStore();
  const std::vector<TestChunk> chunks = {Chunk(1, 8192)};
  const wire::PutDone done = peer_->Put(ns_, chunks, /*in_line=*/true, /*wrong_digest=*/true);
  EXPECT_THAT(Statuses(done.statuses()), ElementsAre(wire::CHUNK_DATA_LOSS));
  EXPECT_THAT(done.message(), HasSubstr("digest"));
  EXPECT_THAT(Statuses(peer_->Get(ns_, chunks).head.statuses()),
              ElementsAre(wire::CHUNK_NOT_FOUND));
  EXPECT_TRUE(NothingHeld());
}

TEST_F(StoreDaemonTest, GetOfAnotherLengthNamesTheRealOne) {
  StartStore();
  peer_->Put(ns_, {Chunk(1, 8192)});
  TestChunk shorter = Chunk(1, 4096);
  const TestPeer::Got got = peer_->Get(ns_, {shorter});
  EXPECT_THAT(Statuses(got.head.statuses()), ElementsAre(wire::CHUNK_INVALID_ARGUMENT));
  uint32_t real;
  memcpy(&real, got.head.lengths().data(), 4);
  EXPECT_EQ(real, 8192u);
  EXPECT_TRUE(got.payload.empty());
}

TEST_F(StoreDaemonTest, RangesAndPartsCarryThePartTableWhereItCanBeUsed) {
  StartStore();
  const TestChunk chunk = Chunk(1, (3 << 20) + 5);
  peer_->Put(ns_, {chunk}, /*in_line=*/false);
  struct Case {
    uint64_t offset;
    uint32_t bytes;
    uint32_t first_part, part_count;
    uint64_t expect_offset, expect_bytes;
    bool table;
  };
  const Case cases[] = {
      {100, 50, 0, 0, 100, 50, false},                              // inside one part
      {1 << 19, 1 << 20, 0, 0, 1 << 19, 1 << 20, false},            // halves of two
      {1 << 20, 1 << 20, 0, 0, 1 << 20, 1 << 20, true},             // exactly part 1
      {100, (3 << 20) + 5 - 100, 0, 0, 100, (3 << 20) - 95, true},  // parts 1, 2 and the short last
      {0, 0, 1, 2, 1 << 20, 2 << 20, true},                         // parts 1 and 2
      {0, 0, 3, 0, 3 << 20, 5, true},                               // from part 3 to the end
  };
  // Four parts, all of whose digests make the root.
  std::string table;
  for (const size_t at : {0, 1 << 20, 2 << 20, 3 << 20}) {
    const std::string part = chunk.bytes.substr(at, 1 << 20);
    const PartDigest digest = DigestOf(part.data(), part.size());
    table.append(reinterpret_cast<const char*>(&digest), 8);
  }
  for (const Case& c : cases) {
    wire::GetRequest request;
    request.set_ns_ref(ns_);
    request.set_ids(std::string(chunk.id.view()));
    if (c.bytes != 0) {
      request.set_range_offsets(std::string(reinterpret_cast<const char*>(&c.offset), 8));
      request.set_range_lengths(std::string(reinterpret_cast<const char*>(&c.bytes), 4));
    }
    request.set_first_part(c.first_part);
    request.set_part_count(c.part_count);
    const auto target = static_cast<uint32_t>(c.expect_bytes);
    request.set_target_lengths(std::string(reinterpret_cast<const char*>(&target), 4));
    request.set_deadline_ms(5'000);
    const AnswerFrames answer = peer_->Call(FrameType::kGet, request.SerializeAsString());
    ASSERT_OK(answer.status);
    const std::string expected =
        (c.table ? table : "") + chunk.bytes.substr(c.expect_offset, c.expect_bytes);
    EXPECT_TRUE(answer.payload == expected) << c.offset << " " << c.first_part;
  }
}

TEST_F(StoreDaemonTest, PartMajorSendsTablesThenPartAfterPart) {
  StartStore();
  // Of 4, 1 and 2 parts of 4 KiB; the last parts are shorter.
  const std::vector<TestChunk> chunks = {Chunk(1, 3 * 4096 + 5), Chunk(2, 4096),
                                         Chunk(3, 4096 + 100)};
  std::string put;
  std::string tables;
  for (const TestChunk& c : chunks) {
    std::string table;
    for (size_t at = 0; at < c.bytes.size(); at += 4096) {
      const std::string part = c.bytes.substr(at, 4096);
      const PartDigest digest = DigestOf(part.data(), part.size());
      table.append(reinterpret_cast<const char*>(&digest), 8);
    }
    put += c.bytes + table;
    tables += table;
  }
  wire::PutRequest meta = peer_->PutMeta(ns_, chunks, true);
  meta.set_part_bytes(4096);
  ASSERT_OK(peer_->Call(FrameType::kPut, meta.SerializeAsString(), put).status);

  wire::GetRequest request;
  request.set_ns_ref(ns_);
  request.set_order(wire::PART_MAJOR);
  request.set_deadline_ms(5'000);
  for (const TestChunk& c : chunks) {
    request.mutable_ids()->append(c.id.view());
    const auto bytes = static_cast<uint32_t>(c.bytes.size());
    request.mutable_target_lengths()->append(reinterpret_cast<const char*>(&bytes), 4);
  }
  const auto part = [&](size_t chunk, size_t p) {
    return chunks[chunk].bytes.substr(p * 4096, 4096);
  };
  AnswerFrames answer = peer_->Call(FrameType::kGet, request.SerializeAsString());
  ASSERT_OK(answer.status);
  EXPECT_TRUE(answer.payload == tables + part(0, 0) + part(1, 0) + part(2, 0) + part(0, 1) +
                                    part(2, 1) + part(0, 2) + part(0, 3));

  // Byte ranges that begin and end within parts: the pieces keep to the parts they are of.
  request.clear_target_lengths();
  const uint64_t offsets[] = {4000, 0, 4090};
  const uint32_t lengths[] = {200, 50, 20};
  request.set_range_offsets(std::string(reinterpret_cast<const char*>(offsets), 24));
  request.set_range_lengths(std::string(reinterpret_cast<const char*>(lengths), 12));
  request.set_target_lengths(request.range_lengths());
  answer = peer_->Call(FrameType::kGet, request.SerializeAsString());
  ASSERT_OK(answer.status);
  EXPECT_EQ(answer.payload, chunks[0].bytes.substr(4000, 96) + chunks[1].bytes.substr(0, 50) +
                                chunks[2].bytes.substr(4090, 6) +
                                chunks[0].bytes.substr(4096, 104) +
                                chunks[2].bytes.substr(4096, 14));
}

TEST_F(StoreDaemonTest, RefusesWhatItCannotServe) {
  StartStore();
  wire::GetRequest request;
  request.set_ns_ref(99);
  request.set_ids(std::string(16, 'x'));
  request.set_target_lengths(std::string(4, '\1'));
  request.set_deadline_ms(1'000);
  EXPECT_THAT(peer_->Call(FrameType::kGet, request.SerializeAsString()).status,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not bound")));
  EXPECT_THAT(peer_->Call(FrameType::kGet, "\xff\xff").status,
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(peer_->Call(FrameType::kLookup, "").status,
              StatusIs(absl::StatusCode::kUnimplemented));
  wire::BindNamespace bind;
  bind.set_name("model");
  bind.set_fingerprint("fp");
  bind.set_id(std::string(16, 'x'));  // not the derived one
  EXPECT_THAT(peer_->Call(FrameType::kBindNamespace, bind.SerializeAsString()).status,
              StatusIs(absl::StatusCode::kInvalidArgument));
  // A failed bind took ref 2.
  ASSERT_OK_AND_ASSIGN(const uint32_t next, peer_->Bind("model", "other"));
  EXPECT_EQ(next, 3u);
}

TEST_F(StoreDaemonTest, ChunkOfAnotherNamespaceIsAMiss) {
  StartStore();
  const TestChunk chunk = Chunk(1, 4096);
  peer_->Put(ns_, {chunk});
  ASSERT_OK_AND_ASSIGN(const uint32_t other, peer_->Bind("other-model", "fp"));
  EXPECT_THAT(Statuses(peer_->Get(other, {chunk}).head.statuses()),
              ElementsAre(wire::CHUNK_NOT_FOUND));
}

TEST_F(StoreDaemonTest, ExecutesEvictionsOfTheSameVersionAndEpochOnly) {
  StartStore();
  const TestChunk chunk = Chunk(1, 4096);
  peer_->Put(ns_, {chunk});
  ASSERT_TRUE(Told(chunk, wire::TIER_DRAM));
  const uint64_t version = master_.chunks().at({chunk.id, 0}).version;
  const auto evict = [&](uint64_t command, uint64_t of_version, uint64_t epoch) {
    wire::MasterMessage message;
    message.mutable_evict()->set_command(command);
    message.mutable_evict()->set_epoch(epoch);
    message.mutable_evict()->set_ids(std::string(chunk.id.view()));
    message.mutable_evict()->set_versions(
        std::string(reinterpret_cast<const char*>(&of_version), 8));
    message.mutable_evict()->set_tier(wire::TIER_DRAM);
    message.mutable_evict()->set_cause(wire::CAUSE_EVICT_WATERMARK);
    ASSERT_TRUE(master_.Send(message));
  };
  evict(1, version + 1, 1);
  ASSERT_TRUE(master_.WaitFor([&] { return master_.heartbeat().acked_command() == 1; }));
  EXPECT_THAT(Statuses(peer_->Get(ns_, {chunk}).head.statuses()), ElementsAre(0));
  evict(2, version, 0);  // of a master that was replaced
  evict(3, version, 1);
  EXPECT_TRUE(Told(chunk, 0));
  EXPECT_EQ(master_.chunks().at({chunk.id, 0}).cause, wire::CAUSE_EVICT_WATERMARK);
  EXPECT_TRUE(NothingHeld());
}

TEST_F(StoreDaemonTest, PutThatNeverSendsItsPayloadLeavesNothing) {
  StartStore();
  const AnswerFrames answer = peer_->Call(
      FrameType::kPut, peer_->PutMeta(ns_, {Chunk(1, 2 << 20)}, false).SerializeAsString(), {}, {},
      absl::Milliseconds(100));
  EXPECT_THAT(answer.status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(answer.types, ElementsAre(FrameType::kPutReady));
  EXPECT_TRUE(NothingHeld());
}

TEST_F(StoreDaemonTest, FullStoreMakesRoomByItself) {
  StartStore();
  for (uint8_t n = 1; n <= 30; ++n) {  // 15 MiB into a segment of 8
    const wire::PutDone done = peer_->Put(ns_, {Chunk(n, 512 << 10)});
    ASSERT_THAT(Statuses(done.statuses()), ElementsAre(0)) << int{n} << " " << done.message();
  }
  EXPECT_THAT(Statuses(peer_->Get(ns_, {Chunk(30, 512 << 10)}).head.statuses()), ElementsAre(0));
  EXPECT_THAT(Statuses(peer_->Get(ns_, {Chunk(1, 512 << 10)}).head.statuses()),
              ElementsAre(wire::CHUNK_NOT_FOUND));
  EXPECT_TRUE(master_.WaitFor([&] { return master_.need_bytes() != 0; }));
}

TEST_F(StoreDaemonTest, MasterAddressIsAHostAndAPort) {
  for (const char* address : {"", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", ":7601", "10.0.0.1:99999",
                              "10.0.0.1:76o1", "::1:7601"}) {
    config::StoreConfig config = Config();
    config.set_master_address(address);
    EXPECT_THAT(StoreDaemon::CheckConfig(config),
                StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("master_address")))
        << address;
  }
  for (const char* address : {"10.0.0.1:7601", "master.local:1", "[::1]:65535"}) {
    config::StoreConfig config = Config();
    config.set_master_address(address);
    EXPECT_THAT(StoreDaemon::CheckConfig(config), IsOk()) << address;
  }
}

TEST_F(StoreDaemonTest, WithoutAMasterItServesAndMakesRoomByItself) {
  StartStore();  // it meets its pool
  const TestChunk kept = Chunk(1, 100'000);
  peer_->Put(ns_, {kept});
  StopStore();
  config::StoreConfig alone = Config();
  alone.set_master_address("127.0.0.1:1");
  ASSERT_OK_AND_ASSIGN(store_, StoreDaemon::Start(alone, Clock::Real(), [] { return false; }));
  peer_ = std::make_unique<TestPeer>(store_->data_port(), kToken);
  ASSERT_OK_AND_ASSIGN(ns_, peer_->Bind("model", "fp"));
  EXPECT_EQ(peer_->Get(ns_, {kept}).payload.substr(8), kept.bytes);
  for (uint8_t n = 2; n <= 31; ++n) {  // 15 MiB into a segment of 8
    const wire::PutDone done = peer_->Put(ns_, {Chunk(n, 512 << 10)});
    ASSERT_THAT(Statuses(done.statuses()), ElementsAre(0)) << int{n} << " " << done.message();
  }
  EXPECT_EQ(peer_->Get(ns_, {Chunk(31, 512 << 10)}).payload.substr(8), Chunk(31, 512 << 10).bytes);
}

TEST_F(StoreDaemonTest, PoolFileIsWrittenWholeOrNotAtAll) {
  ASSERT_OK(ArmFault("base.durable_file.write:error"));
  EXPECT_THAT(StoreDaemon::Start(Config(), Clock::Real(), [] { return false; }).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(dir_ / "data/pool")));
  DisarmFaults();
  StartStore();
  EXPECT_EQ(ReadFile(dir_ / "data/pool"), master_.pool_id().ToHex() + "\n");
}

TEST_F(StoreDaemonTest, CommittedChunksAreBackAfterARestart) {
  StartStore();
  const TestChunk chunk = Chunk(1, 100'000);
  peer_->Put(ns_, {chunk});
  ASSERT_TRUE(Told(chunk, wire::TIER_DRAM));
  const uint64_t version = master_.chunks().at({chunk.id, 0}).version;
  StopStore();
  StartStore();
  EXPECT_EQ(peer_->Get(ns_, {chunk}).payload.substr(8), chunk.bytes);
  ASSERT_TRUE(master_.WaitFor([&] { return master_.snapshots_ended() == 2; }));
  EXPECT_EQ(master_.snapshot_count(), 1u);
  EXPECT_EQ(master_.chunks().at({chunk.id, 0}).version, version);
  // Versions go on above all that were given before.
  const TestChunk later = Chunk(2, 4096);
  peer_->Put(ns_, {later});
  ASSERT_TRUE(Told(later, wire::TIER_DRAM));
  EXPECT_GT(master_.chunks().at({later.id, 0}).version, version);
  EXPECT_EQ(master_.problem(), "");
}

// A reader cannot check a range that cuts parts, so the store does, once after each start: what the
// process before it had checked may have changed since.
TEST_F(StoreDaemonTest, RangeOfAChunkThatChangedWhileTheStoreWasDownIsNotServed) {
  StartStore();
  const TestChunk chunk = Chunk(1, 100'000);
  peer_->Put(ns_, {chunk});
  StopStore();
  FlipByteInSegment(chunk, 50'000);
  StartStore();
  const AnswerFrames answer =
      peer_->Call(FrameType::kGet, RangeRequest(chunk, 10, 20).SerializeAsString());
  ASSERT_OK(answer.status);
  wire::GetHead head;
  ASSERT_TRUE(head.ParseFromString(answer.metas[0]));
  EXPECT_THAT(Statuses(head.statuses()), ElementsAre(wire::CHUNK_DATA_LOSS));
  EXPECT_TRUE(answer.payload.empty());
  EXPECT_THAT(Statuses(peer_->Get(ns_, {chunk}).head.statuses()),
              ElementsAre(wire::CHUNK_NOT_FOUND));
}

TEST_F(StoreDaemonTest, RangeOfASoundChunkIsServedAfterARestart) {
  StartStore();
  const TestChunk chunk = Chunk(1, 100'000);
  peer_->Put(ns_, {chunk});
  StopStore();
  StartStore();
  const AnswerFrames answer =
      peer_->Call(FrameType::kGet, RangeRequest(chunk, 10, 20).SerializeAsString());
  ASSERT_OK(answer.status);
  EXPECT_EQ(answer.payload, chunk.bytes.substr(10, 20));
}

TEST_F(StoreDaemonTest, CutSessionResumesWithoutASnapshot) {
  StartStore();
  ASSERT_TRUE(master_.WaitFor([&] { return master_.snapshots_ended() == 1; }));
  master_.AnswerWithResume(true);
  const int sessions = master_.sessions();
  master_.CutSession();
  const TestChunk chunk = Chunk(1, 4096);
  peer_->Put(ns_, {chunk});
  ASSERT_TRUE(master_.WaitFor([&] { return master_.sessions() > sessions; }));
  EXPECT_TRUE(Told(chunk, wire::TIER_DRAM));
  EXPECT_EQ(master_.snapshots_ended(), 1);
  EXPECT_EQ(master_.problem(), "");
}

TEST_F(StoreDaemonTest, SecondStoreOnTheSameFolderIsRefused) {
  StartStore();
  EXPECT_THAT(StoreDaemon::Start(Config(), Clock::Real(), [] { return false; }).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in use")));
}

TEST_F(StoreDaemonTest, WrongReportsAreNotHashedForEver) {
  StartStore("40MiB");
  const TestChunk good = Chunk(1, 32 << 20);
  peer_->Put(ns_, {good}, /*in_line=*/false);
  const TestChunk bad = Chunk(2, 8192);
  peer_->Put(ns_, {bad});
  wire::ReportBad report;
  report.set_ns_ref(ns_);
  report.set_deadline_ms(20'000);
  // A peer that says so of a good chunk 1,024 times: 32 GiB to hash. The connection's share is 256
  // MiB at once and 32 MiB a second.
  for (int i = 0; i < 1'024; ++i) report.mutable_ids()->append(good.id.view());
  report.set_versions(std::string(8 * 1'024, '\0'));
  const MonoTime start = Clock::Real().Mono();
  const AnswerFrames answer = peer_->Call(FrameType::kReportBad, report.SerializeAsString());
  const double seconds = absl::ToDoubleSeconds(Clock::Real().Mono() - start);
  ASSERT_OK(answer.status);
  wire::ReportBadReply reply;
  ASSERT_TRUE(reply.ParseFromString(answer.metas.at(0)));
  const auto hashed =
      std::count(reply.statuses().begin(), reply.statuses().end(), char{wire::CHUNK_OK});
  EXPECT_GE(hashed, 8);  // 256 MiB
  EXPECT_LE(hashed, 8 + seconds + 1);
  EXPECT_EQ(std::count(reply.statuses().begin(), reply.statuses().end(),
                       char{wire::CHUNK_RESOURCE_EXHAUSTED}),
            1'024 - hashed);
  EXPECT_THAT(Statuses(peer_->Get(ns_, {good}).head.statuses()), ElementsAre(wire::CHUNK_OK));

  // Others are heard.
  FlipByteInSegment(bad, 77);
  TestPeer other(store_->data_port(), kToken);
  ASSERT_OK_AND_ASSIGN(const uint32_t ns, other.Bind("model", "fp"));
  report.set_ns_ref(ns);
  report.set_ids(std::string(bad.id.view()));
  report.set_versions(std::string(8, '\0'));
  const AnswerFrames heard = other.Call(FrameType::kReportBad, report.SerializeAsString());
  ASSERT_OK(heard.status);
  ASSERT_TRUE(reply.ParseFromString(heard.metas.at(0)));
  EXPECT_THAT(Statuses(reply.statuses()), ElementsAre(wire::CHUNK_DATA_LOSS));
}

TEST_F(StoreDaemonTest, ReportedChunkIsHashedAndDroppedOnlyIfBad) {
  StartStore();
  const TestChunk good = Chunk(1, 8192);
  const TestChunk bad = Chunk(2, 8192);
  peer_->Put(ns_, {good, bad});
  FlipByteInSegment(bad, 100);

  wire::ReportBad report;
  report.set_ns_ref(ns_);
  report.set_ids(std::string(good.id.view()) + std::string(bad.id.view()));
  report.set_versions(peer_->Get(ns_, {good, bad}).head.versions());
  report.set_deadline_ms(5'000);
  const AnswerFrames answer = peer_->Call(FrameType::kReportBad, report.SerializeAsString());
  ASSERT_OK(answer.status);
  wire::ReportBadReply reply;
  ASSERT_TRUE(reply.ParseFromString(answer.metas.at(0)));
  EXPECT_THAT(Statuses(reply.statuses()), ElementsAre(wire::CHUNK_OK, wire::CHUNK_DATA_LOSS));
  EXPECT_THAT(Statuses(peer_->Get(ns_, {good, bad}).head.statuses()),
              ElementsAre(0, wire::CHUNK_NOT_FOUND));
  EXPECT_TRUE(Told(bad, 0));
}

TEST_F(StoreDaemonTest, WrongTokenIsRefused) {
  StartStore();
  TestPeer stranger(store_->data_port(), "another token, as long as the real one");
  EXPECT_THAT(stranger.Bind("model", "fp").status(), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Statuses(peer_->Put(ns_, {Chunk(1, 4096)}).statuses()), ElementsAre(0));
}

TEST(StoreConfigTest, SegmentsHaveNamesOfTheirOwn) {
  config::StoreConfig config;
  config.set_listen_address("127.0.0.1");
  config.set_master_address("127.0.0.1:7601");
  config.add_segment();
  config.add_segment()->set_name("dram-0");  // the default name of the first
  EXPECT_THAT(StoreDaemon::CheckConfig(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("two segments are called")));
  config.mutable_segment(1)->set_name("dram-1");
  EXPECT_OK(StoreDaemon::CheckConfig(config));
  while (config.segment_size() < 65) config.add_segment();
  EXPECT_THAT(StoreDaemon::CheckConfig(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 64")));
}

TEST(StoreConfigTest, RulesAcrossKeys) {
  config::StoreConfig config;
  config.set_listen_address("127.0.0.1");
  config.set_master_address("127.0.0.1:7601");
  EXPECT_THAT(StoreDaemon::CheckConfig(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[[segment]]")));
  config.add_segment()->set_name("a/b");
  EXPECT_THAT(StoreDaemon::CheckConfig(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("plain file name")));
  config.mutable_segment(0)->set_name("dram-0");
  EXPECT_OK(StoreDaemon::CheckConfig(config));
  config.set_listen_address("0.0.0.0");
  EXPECT_THAT(StoreDaemon::CheckConfig(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pool_token_file")));
}

}  // namespace
}  // namespace cistern::store
