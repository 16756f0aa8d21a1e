// What a store finds after a restart or a kill: segments are files here, and stay.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/chunk_store.h"
#include "store/chunk_store_testing.h"

namespace cistern::store {
namespace {

class ChunkStoreRecoveryTest : public ChunkStoreTestBase {
 protected:
  ChunkStoreRecoveryTest() { setup_.kind = SegmentKind::kFile; }
  void Reopen() {
    store_.reset();
    ASSERT_OK_AND_ASSIGN(store_, OpenStore(dir_, setup_, now_));
    ns_ = *store_->BindNamespace(TestNamespace("model"));
  }
  // Runs `put` in a child process that dies at the armed fault point, or at its end.
  template <typename F>
  void InDyingProcess(const char* fault, F put) {
    store_.reset();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = OpenStore(dir_, setup_, now_);
      if (!store.ok()) _exit(3);
      store_ = *std::move(store);
      ns_ = *store_->BindNamespace(TestNamespace("model"));
      if (fault != nullptr && !ArmFault(fault).ok()) _exit(4);
      put();
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit " << WEXITSTATUS(status);
  }
  // Changes the header that holds chunk `n`.
  template <typename F>
  void ChangeHeader(uint64_t n, F change) {
    store_.reset();
    SegmentOptions options;
    options.path = dir_ / "dram-0";
    options.bytes = setup_.segment_bytes[0];
    options.pool_id = TestPool();
    ASSERT_OK_AND_ASSIGN(auto segment, Segment::Open(options, now_));
    for (ChunkHeader& h : segment->headers()) {
      if (std::memcmp(h.key_id, NameOf(n).id.bytes.data(), 16) == 0 &&
          HeaderWordState(h.word) != HeaderState::kFree) {
        change(h);
        h.crc32c = HeaderCrc(h);
        return;
      }
    }
    FAIL() << "no header of chunk " << n;
  }

  StoreSetup setup_;
};

TEST_F(ChunkStoreRecoveryTest, EverythingCommittedIsThereAfterARestart) {
  Reopen();
  const PutOptions parts = [] {
    PutOptions o;
    o.part_bytes = 4096;
    return o;
  }();
  const Version v1 = Put(1, 10'000);
  const Version v2 = Put(2, 20'000, parts);
  const wire::TierUsage before = [&] {
    wire::TierUsage usage;
    store_->Usage(now_, &usage);
    return usage;
  }();
  Reopen();
  EXPECT_EQ(store_->recovery().recovered_chunks, 2u);
  EXPECT_EQ(store_->recovery().recovered_bytes, 30'000u);
  EXPECT_TRUE(HasBytes(1, 10'000));
  EXPECT_TRUE(HasBytes(2, 20'000));
  EXPECT_EQ(store_->Acquire(ns_, NameOf(1), now_).version(), v1);
  EXPECT_EQ(store_->ReportBad(ns_, NameOf(2), v2), wire::CHUNK_OK);  // its part table is intact
  wire::TierUsage after;
  store_->Usage(now_, &after);
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString());
  // A new process, a new session: what was found is told by a snapshot, not by the log.
  EXPECT_EQ(store_->log().range().next, 1u);
  EXPECT_GT(Put(3, 4096), v2);
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreRecoveryTest, NamespacesComeBackByName) {
  Reopen();
  wire::NamespaceOptions options;
  options.set_part_bytes(8192);
  ns_ = *store_->BindNamespace(TestNamespace("second", options));
  Put(1, 4096);
  store_.reset();
  ASSERT_OK_AND_ASSIGN(store_, OpenStore(dir_, setup_, now_));
  EXPECT_FALSE(store_->FindNamespace(TestNamespace("model").id).has_value());  // it had no chunk
  const auto entries = store_->NamespacesWithChunks();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].info.name(), "second");
  EXPECT_EQ(entries[0].info.fingerprint(), "fp of second");
  EXPECT_EQ(entries[0].info.options().part_bytes(), 8192u);
}

TEST_F(ChunkStoreRecoveryTest, ArrivalOrderIsThatOfTheVersions) {
  Reopen();
  for (uint64_t n = 0; n < 5; ++n) Put(n, 4096);
  store_->Remove(ns_, NameOf(1), Version(0), wire::CAUSE_REMOVED);
  Put(9, 4096);  // takes the header of 1, in front of the others
  Reopen();
  for (const uint64_t oldest : {0, 2, 3, 4, 9}) {
    EXPECT_TRUE(Has(oldest));
    store_->EvictSelf(1, 0, wire::CAUSE_EVICT_SELF, now_);
    EXPECT_FALSE(Has(oldest)) << oldest;
  }
}

TEST_F(ChunkStoreRecoveryTest, VersionsNeverRunBackwards) {
  Reopen();
  const Version before = Put(1, 4096);
  store_->Remove(ns_, NameOf(1), before, wire::CAUSE_REMOVED);
  // The DRAM is lost too, as after a reboot.
  store_.reset();
  ASSERT_EQ(unlink((dir_ / "dram-0").c_str()), 0);
  Reopen();
  EXPECT_GT(Put(1, 4096), before);
}

TEST_F(ChunkStoreRecoveryTest, LostDataFolderDoesNotBringVersionsBack) {
  Reopen();
  for (uint64_t n = 0; n < 4; ++n) Put(n, 4096);
  store_->DropNamespace(TestNamespace("model").id);
  const Version last = Put(5, 4096);
  store_.reset();
  ASSERT_EQ(unlink((dir_ / "identity").c_str()), 0);
  Reopen();
  EXPECT_TRUE(Has(5));
  EXPECT_GT(Put(6, 4096), last);
  Reopen();
  EXPECT_TRUE(Has(6));
}

TEST_F(ChunkStoreRecoveryTest, KillBeforeTheCommitWordLeavesNothing) {
  InDyingProcess("store.header.filled:kill", [&] { Put(1, 4096); });
  Reopen();
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(store_->recovery().writing, 1u);
  EXPECT_TRUE(store_->AllFree());
  EXPECT_NE(Put(1, 4096), Version(0));
}

TEST_F(ChunkStoreRecoveryTest, KillAfterTheCommitWordLeavesTheChunk) {
  InDyingProcess("store.header.committed:kill", [&] { Put(1, 50'000); });
  Reopen();
  EXPECT_TRUE(HasBytes(1, 50'000));
  EXPECT_EQ(store_->recovery().writing, 0u);
}

TEST_F(ChunkStoreRecoveryTest, KillAmongPutsAndRemovalsKeepsEveryChunkRight) {
  InDyingProcess("store.header.filled:kill:1:60", [&] {
    for (uint64_t n = 0; n < 100; ++n) {
      Put(n, 4096 + n * 500);
      if (n % 3 == 2) store_->Remove(ns_, NameOf(n - 1), Version(0), wire::CAUSE_REMOVED);
    }
  });
  Reopen();
  // 60 commits went through; the 61st (n = 60) died. Of n = 0 to 59, 20 were removed.
  EXPECT_EQ(store_->recovery().recovered_chunks, 40u);
  EXPECT_EQ(store_->recovery().writing, 1u);
  for (uint64_t n = 0; n < 60; ++n) {
    if (n % 3 == 1) {
      EXPECT_FALSE(Has(n)) << n;
    } else {
      EXPECT_TRUE(HasBytes(n, 4096 + n * 500)) << n;
    }
  }
  EXPECT_FALSE(Has(60));
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreRecoveryTest, ReplacedChunkIsTheNewOneAfterAKillBetween) {
  setup_.kind = SegmentKind::kFile;
  wire::NamespaceOptions options;
  options.set_mutable_chunks(true);
  InDyingProcess(nullptr, [&] {
    ns_ = *store_->BindNamespace(TestNamespace("mutable", options));
    Put(1, 4096);
    // The second commit word is in place, the old header is not freed yet.
    if (!ArmFault("store.header.committed:kill").ok()) _exit(4);
    PutOptions replace;
    replace.replace = true;
    Put(1, 8192, replace);
  });
  Reopen();
  ns_ = *store_->FindNamespace(TestNamespace("mutable").id);
  EXPECT_TRUE(HasBytes(1, 8192));
  EXPECT_EQ(store_->recovery().duplicate, 1u);
  EXPECT_EQ(store_->chunk_count(), 1u);
}

TEST_F(ChunkStoreRecoveryTest, DroppedNamespaceStaysDropped) {
  Reopen();
  Put(1, 4096);
  Version v;
  {
    const ChunkRef ref = store_->Acquire(ns_, NameOf(1), now_);
    v = ref.version();
  }
  store_->DropNamespace(TestNamespace("model").id);
  Put(2, 4096);
  // As if the process had died after the mark was written and before chunk 1 was freed: its header
  // as it was, in a place of its own.
  ChangeHeader(2, [&](ChunkHeader& h) {
    ChunkHeader& next = *(&h + 1);
    next = h;
    next.version = v.value;
    next.payload_offset += 8192;
    std::memcpy(next.key_id, NameOf(1).id.bytes.data(), 16);
    next.crc32c = HeaderCrc(next);
  });
  Reopen();
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(2));
  EXPECT_EQ(store_->recovery().orphaned, 1u);
}

TEST_F(ChunkStoreRecoveryTest, OverlappingExtentsKeepTheHigherVersion) {
  Reopen();
  Put(1, 8192);
  Put(2, 8192);
  uint64_t first_offset = 0;
  ChangeHeader(1, [&](ChunkHeader& h) { first_offset = h.payload_offset; });
  ChangeHeader(2, [&](ChunkHeader& h) { h.payload_offset = first_offset + 4096; });
  Reopen();
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(2));
  EXPECT_EQ(store_->recovery().overlapping, 1u);
  // Its digest no longer fits: found when a reader complains.
  EXPECT_EQ(store_->ReportBad(ns_, NameOf(2), Version(0)), wire::CHUNK_DATA_LOSS);
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreRecoveryTest, ChunkInTwoSegmentsKeepsTheHigherVersion) {
  setup_.segment_bytes = {8 * kMiB, 8 * kMiB};
  Reopen();
  Put(1, 4096);  // segment 0
  Put(2, 4096);  // segment 1, which has more free by then
  ChangeHeader(1, [&](ChunkHeader& h) { std::memcpy(h.key_id, NameOf(2).id.bytes.data(), 16); });
  Reopen();
  EXPECT_EQ(store_->recovery().duplicate, 1u);
  EXPECT_TRUE(HasBytes(2, 4096));
  EXPECT_EQ(store_->chunk_count(), 1u);
}

TEST_F(ChunkStoreRecoveryTest, WhatExpiredMeanwhileIsNotTakenUp) {
  Reopen();
  PutOptions options;
  options.expiry_unix_ms = static_cast<uint64_t>(absl::ToUnixMillis(now_)) + 10'000;
  Put(1, 4096, options);
  Put(2, 4096);
  PutOptions later;
  later.expiry_unix_ms = static_cast<uint64_t>(absl::ToUnixMillis(now_)) + 60'000;
  Put(3, 4096, later);
  now_ += absl::Seconds(30);
  Reopen();
  EXPECT_EQ(store_->recovery().expired, 1u);
  EXPECT_EQ(store_->chunk_count(), 2u);
  EXPECT_EQ(store_->NextExpiry(), kTestStart + absl::Seconds(60));
}

TEST_F(ChunkStoreRecoveryTest, NamespaceSlotsThatRunOutAreReused) {
  Reopen();  // 8 MiB: 16 slots
  for (int i = 0; i < 40; ++i) {
    ns_ = *store_->BindNamespace(TestNamespace("ns" + std::to_string(i)));
    ASSERT_NE(Put(static_cast<uint64_t>(i), 4096), Version(0)) << i;
    if (i >= 10) {  // the first ten keep their chunk
      store_->Remove(ns_, NameOf(static_cast<uint64_t>(i)), Version(0), wire::CAUSE_REMOVED);
    }
  }
  for (int i = 40; i < 46; ++i) {
    ns_ = *store_->BindNamespace(TestNamespace("ns" + std::to_string(i)));
    ASSERT_NE(Put(static_cast<uint64_t>(i), 4096), Version(0)) << i;
  }
  ns_ = *store_->BindNamespace(TestNamespace("one too many"));
  EXPECT_EQ(Begin(100, 4096).status, wire::CHUNK_RESOURCE_EXHAUSTED);
  Reopen();
  EXPECT_EQ(store_->chunk_count(), 16u);
  EXPECT_EQ(store_->recovery().orphaned, 0u);
}

TEST_F(ChunkStoreRecoveryTest, NoVersionNoCommit) {
  Reopen();
  ASSERT_OK(ArmFault("store.ceiling.write:error:0"));
  PutAnswer answer = Begin(1, 4096);
  FillSlot(1, &answer.slot);
  EXPECT_THAT(store_->Commit(std::move(answer.slot), {}, now_),
              StatusIs(absl::StatusCode::kUnavailable));
  DisarmFaults();
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreRecoveryTest, SecondStoreOnTheFolderIsRefused) {
  Reopen();
  EXPECT_THAT(OpenStore(dir_, setup_),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("in use")));
}

}  // namespace
}  // namespace cistern::store
