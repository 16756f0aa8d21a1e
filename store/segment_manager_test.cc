// Mounts and unmounts at run time, with files, kills in the midst included.
#include "store/segment_manager.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/chunk_store_testing.h"

namespace cistern::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class SegmentManagerTest : public ChunkStoreTestBase {
 protected:
  SegmentManagerTest() {
    SegmentSpec spec;
    spec.name = "dram-0";
    spec.bytes = 8 * kMiB;
    configured_.push_back(spec);
    spec.name = "dram-1";
    configured_.push_back(spec);
  }
  ~SegmentManagerTest() override { Close(); }

  // As the daemon does.
  absl::Status StartStore() {
    CISTERN_ASSIGN_OR_RETURN(auto versions, VersionCeiling::Open({dir_.path(), TestPool()}));
    SegmentManifest manifest;
    CISTERN_ASSIGN_OR_RETURN(auto segments,
                             OpenSegments(Place(), configured_, now_, nullptr, &manifest));
    CISTERN_ASSIGN_OR_RETURN(
        store_, ChunkStore::Create({}, std::move(segments), std::move(versions), now_));
    ns_ = *store_->BindNamespace(TestNamespace("model"));
    SegmentManager::Options options;
    options.place = Place();
    options.configured = configured_;
    options.poke = [] {};
    manager_ = std::make_unique<SegmentManager>(std::move(options), std::move(manifest), *store_,
                                                Clock::Real());
    manager_->Start();
    return absl::OkStatus();
  }
  void Close() {
    manager_.reset();
    store_.reset();
  }
  void Restart() {
    Close();
    ASSERT_OK(StartStore());
  }
  SegmentPlace Place() const { return {dir_.path(), dir_.path(), TestPool(), 4096}; }

  wire::SegmentDone Await() {
    const MonoTime until = Clock::Real().Mono() + absl::Seconds(60);
    while (Clock::Real().Mono() < until) {
      if (auto done = manager_->TakeDone()) return *done;
      Clock::Real().SleepFor(absl::Milliseconds(1));
    }
    ADD_FAILURE() << "no answer";
    return {};
  }
  wire::SegmentDone Do(const wire::SegmentCommand& command) {
    manager_->Execute(command);
    wire::SegmentDone done = Await();
    EXPECT_EQ(done.command(), command.command());
    return done;
  }
  static wire::SegmentCommand MountCommand(const std::string& name, uint64_t bytes) {
    wire::SegmentCommand command;
    command.set_command(7);
    command.mutable_mount()->set_name(name);
    command.mutable_mount()->set_bytes(bytes);
    return command;
  }
  static wire::SegmentCommand UnmountCommand(const std::string& segment,
                                             uint32_t deadline_ms = 30'000) {
    wire::SegmentCommand command;
    command.set_command(8);
    command.set_deadline_ms(deadline_ms);
    command.mutable_unmount()->set_segment(segment);
    return command;
  }
  static absl::StatusCode CodeOf(const wire::SegmentDone& done) {
    return static_cast<absl::StatusCode>(done.code());
  }
  std::vector<std::string> Names() const {
    std::vector<wire::SegmentInfo> infos;
    store_->SegmentInfos(&infos);
    std::vector<std::string> names;
    for (const auto& info : infos) names.push_back(info.name());
    return names;
  }
  bool FileExists(const std::string& name) const {
    struct stat st;
    return stat((dir_ / name).c_str(), &st) == 0;
  }
  // Bytes of all files in the folder that are backed.
  std::string Manifest() const {
    return FileExists("segments") ? ReadFile(dir_ / "segments") : std::string();
  }
  // Carries the command out in a process that the armed fault kills.
  void InDyingProcess(const char* fault, const wire::SegmentCommand& command, int puts) {
    Close();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (!StartStore().ok()) _exit(3);
      for (int n = 0; n < puts; ++n) Put(static_cast<uint64_t>(n), 100'000);
      if (!ArmFault(fault).ok()) _exit(4);
      manager_->Execute(command);
      Await();
      _exit(5);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit " << WEXITSTATUS(status);
  }

  std::vector<SegmentSpec> configured_;
  std::unique_ptr<SegmentManager> manager_;
};

TEST_F(SegmentManagerTest, MountedSegmentIsThereAfterARestartWithItsChunks) {
  ASSERT_OK(StartStore());
  const wire::SegmentDone done = Do(MountCommand("extra", 32 * kMiB));
  ASSERT_EQ(done.code(), 0u) << done.message();
  EXPECT_EQ(done.segment().name(), "extra");
  EXPECT_EQ(done.segment().bytes(), 32 * kMiB);
  EXPECT_TRUE(done.segment().persistent());
  for (uint64_t n = 0; n < 100; ++n) ASSERT_NE(Put(n, 256 << 10), Version(0)) << n;
  EXPECT_THAT(Names(), UnorderedElementsAre("dram-0", "dram-1", "extra"));
  Restart();
  EXPECT_THAT(Names(), UnorderedElementsAre("dram-0", "dram-1", "extra"));
  for (uint64_t n = 0; n < 100; ++n) EXPECT_TRUE(HasBytes(n, 256 << 10)) << n;
}

TEST_F(SegmentManagerTest, UnmountGivesFileAndMemoryBackForGood) {
  ASSERT_OK(StartStore());
  ASSERT_EQ(Do(MountCommand("extra", 32 * kMiB)).code(), 0u);
  for (uint64_t n = 0; n < 100; ++n) Put(n, 256 << 10);
  const wire::SegmentDone done = Do(UnmountCommand("extra"));
  ASSERT_EQ(done.code(), 0u) << done.message();
  EXPECT_GT(done.evicted_chunks(), 50u);
  EXPECT_EQ(done.evicted_bytes(), done.evicted_chunks() * (256 << 10));
  EXPECT_FALSE(FileExists("extra"));
  EXPECT_THAT(Names(), UnorderedElementsAre("dram-0", "dram-1"));
  EXPECT_THAT(Manifest(), testing::Not(HasSubstr("extra")));
  uint64_t left = 0;
  for (uint64_t n = 0; n < 100; ++n) {
    if (!Has(n)) continue;
    ++left;
    EXPECT_TRUE(HasBytes(n, 256 << 10));
  }
  EXPECT_EQ(left, 100 - done.evicted_chunks());
  Restart();
  EXPECT_THAT(Names(), UnorderedElementsAre("dram-0", "dram-1"));
}

TEST_F(SegmentManagerTest, ConfiguredSegmentStaysUnmountedUntilItIsMountedByItsName) {
  ASSERT_OK(StartStore());
  // By its id, too.
  std::vector<wire::SegmentInfo> infos;
  store_->SegmentInfos(&infos);
  const SegmentId id = SegmentId::FromBytes(infos[1].segment_id().data());
  ASSERT_EQ(Do(UnmountCommand(id.ToHex())).code(), 0u);
  Restart();
  EXPECT_THAT(Names(), ElementsAre("dram-0"));
  EXPECT_THAT(Manifest(), HasSubstr("unmounted file 8388608 never dram-1"));
  const wire::SegmentDone done = Do(MountCommand("dram-1", 0));  // the size is the configuration's
  ASSERT_EQ(done.code(), 0u) << done.message();
  Restart();
  EXPECT_THAT(Names(), ElementsAre("dram-0", "dram-1"));
  EXPECT_THAT(Manifest(), testing::Not(HasSubstr("dram-1")));
}

TEST_F(SegmentManagerTest, RefusalsSayWhy) {
  ASSERT_OK(StartStore());
  WriteFile(dir_ / "in-the-way", "something");
  struct Case {
    wire::SegmentCommand command;
    absl::StatusCode code;
    const char* says;
  };
  wire::SegmentCommand tape = MountCommand("a", 8 * kMiB);
  tape.mutable_mount()->set_kind("tape");
  wire::SegmentCommand perhaps = MountCommand("a", 8 * kMiB);
  perhaps.mutable_mount()->set_huge_pages("perhaps");
  wire::SegmentCommand cancel = UnmountCommand("dram-0");
  cancel.mutable_unmount()->set_cancel(true);
  const Case cases[] = {
      {MountCommand("a", 4096), absl::StatusCode::kInvalidArgument, "8 MiB to 64 GiB"},
      {MountCommand("../a", 8 * kMiB), absl::StatusCode::kInvalidArgument, "plain file name"},
      {tape, absl::StatusCode::kInvalidArgument, "file or memfd"},
      {perhaps, absl::StatusCode::kInvalidArgument, "never, try or require"},
      {MountCommand("dram-0", 16 * kMiB), absl::StatusCode::kAlreadyExists, "another name"},
      {MountCommand("in-the-way", 8 * kMiB), absl::StatusCode::kAlreadyExists, "remove the file"},
      {UnmountCommand("nobody"), absl::StatusCode::kNotFound, "dram-0, dram-1"},
      {cancel, absl::StatusCode::kFailedPrecondition, "not being unmounted"},
      {wire::SegmentCommand(), absl::StatusCode::kUnimplemented, "does not know"},
  };
  for (const Case& c : cases) {
    const wire::SegmentDone done = Do(c.command);
    EXPECT_EQ(CodeOf(done), c.code) << c.says;
    EXPECT_THAT(done.message(), HasSubstr(c.says));
  }
  EXPECT_EQ(ReadFile(dir_ / "in-the-way"), "something");
  ASSERT_EQ(Do(UnmountCommand("dram-0")).code(), 0u);
  const wire::SegmentDone last = Do(UnmountCommand("dram-1"));
  EXPECT_EQ(CodeOf(last), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(last.message(), HasSubstr("last segment"));
  EXPECT_THAT(Names(), ElementsAre("dram-1"));
}

TEST_F(SegmentManagerTest, MountAskedTwiceIsOneMount) {
  ASSERT_OK(StartStore());
  ASSERT_EQ(Do(MountCommand("extra", 8 * kMiB)).code(), 0u);
  const wire::SegmentDone again = Do(MountCommand("extra", 8 * kMiB));
  EXPECT_EQ(again.code(), 0u) << again.message();
  EXPECT_EQ(again.segment().name(), "extra");
  EXPECT_EQ(Names().size(), 3u);
}

TEST_F(SegmentManagerTest, StoreChoosesAFreeName) {
  ASSERT_OK(StartStore());
  WriteFile(dir_ / "dram-2", "taken");
  const wire::SegmentDone done = Do(MountCommand("", 8 * kMiB));
  ASSERT_EQ(done.code(), 0u) << done.message();
  EXPECT_EQ(done.segment().name(), "dram-3");
}

TEST_F(SegmentManagerTest, TooLargeAMountLeavesNothingBehind) {
  ASSERT_OK(StartStore());
  // More than this disk has free, or more than a segment may have: either way refused at once.
  const wire::SegmentDone done = Do(MountCommand("huge", uint64_t{1} << 40));
  EXPECT_NE(done.code(), 0u);
  ASSERT_OK(ArmFault("base.durable_file.write:error:1"));
  EXPECT_EQ(CodeOf(Do(MountCommand("unrecorded", 8 * kMiB))), absl::StatusCode::kResourceExhausted);
  ASSERT_OK(ArmFault("base.durable_file.write:error:1:1"));  // the second write: "mounted"
  EXPECT_EQ(CodeOf(Do(MountCommand("unrecorded", 8 * kMiB))), absl::StatusCode::kResourceExhausted);
  DisarmFaults();
  EXPECT_FALSE(FileExists("unrecorded"));
  EXPECT_THAT(Manifest(), testing::Not(HasSubstr("unrecorded")));
  EXPECT_EQ(Names().size(), 2u);
  EXPECT_EQ(Do(MountCommand("unrecorded", 8 * kMiB)).code(), 0u);
}

TEST_F(SegmentManagerTest, UnmountThatCannotBeRecordedHasNotHappened) {
  ASSERT_OK(StartStore());
  Put(1, 4096);
  Put(2, 4096);
  ASSERT_OK(ArmFault("base.durable_file.write:error:1"));
  EXPECT_EQ(CodeOf(Do(UnmountCommand("dram-1"))), absl::StatusCode::kResourceExhausted);
  DisarmFaults();
  EXPECT_TRUE(HasBytes(1, 4096));
  EXPECT_TRUE(HasBytes(2, 4096));
  Restart();
  EXPECT_THAT(Names(), ElementsAre("dram-0", "dram-1"));
}

TEST_F(SegmentManagerTest, ReaderDelaysAnUnmountThatIsAnsweredInTimeAndCanBeTakenBack) {
  ASSERT_OK(StartStore());
  ASSERT_EQ(Do(MountCommand("extra", 32 * kMiB)).code(), 0u);
  ASSERT_NE(Put(1, 500'000), Version(0));  // in the large one
  ASSERT_NE(Put(2, 500'000), Version(0));
  ChunkRef reader = store_->Acquire(ns_, NameOf(1), now_);
  wire::SegmentDone done = Do(UnmountCommand("extra", 50));
  EXPECT_EQ(CodeOf(done), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(done.message(), HasSubstr("1 chunks of segment 'extra' are still being read"));
  EXPECT_TRUE(done.segment().unmounting());
  EXPECT_EQ(done.segment().headers_used(), 1u);
  EXPECT_EQ(done.evicted_chunks(), 2u);
  // The reader's bytes are in place all the while.
  EXPECT_EQ(std::string(reader.payload().data(), 500'000), PatternBytes(1, 500'000));

  wire::SegmentCommand cancel = UnmountCommand("extra");
  cancel.mutable_unmount()->set_cancel(true);
  EXPECT_EQ(Do(cancel).code(), 0u);
  reader.Release();
  ASSERT_NE(Put(3, 500'000), Version(0));
  EXPECT_THAT(Manifest(), HasSubstr("mounted file 33554432 never extra"));
  EXPECT_EQ(Names().size(), 3u);

  // Again, and this time the reader goes while somebody waits.
  reader = store_->Acquire(ns_, NameOf(3), now_);
  ASSERT_TRUE(reader);
  manager_->Execute(UnmountCommand("extra"));
  EXPECT_FALSE(manager_->TakeDone().has_value());
  reader.Release();
  done = Await();
  EXPECT_EQ(done.code(), 0u) << done.message();
  EXPECT_FALSE(FileExists("extra"));
}

TEST_F(SegmentManagerTest, UnmountTakenBackLeavesASizeMountedByHandUnderAConfiguredName) {
  ASSERT_OK(StartStore());
  ASSERT_EQ(Do(UnmountCommand("dram-1")).code(), 0u);
  ASSERT_EQ(Do(MountCommand("dram-1", 16 * kMiB)).code(), 0u);  // the configuration says 8 MiB
  ASSERT_NE(Put(1, 500'000), Version(0));
  ASSERT_NE(Put(2, 500'000), Version(0));
  ChunkRef one = store_->Acquire(ns_, NameOf(1), now_);
  ChunkRef two = store_->Acquire(ns_, NameOf(2), now_);
  EXPECT_EQ(CodeOf(Do(UnmountCommand("dram-1", 50))), absl::StatusCode::kDeadlineExceeded);
  wire::SegmentCommand cancel = UnmountCommand("dram-1");
  cancel.mutable_unmount()->set_cancel(true);
  ASSERT_EQ(Do(cancel).code(), 0u);
  const auto bytes = [&] {
    std::vector<wire::SegmentInfo> infos;
    store_->SegmentInfos(&infos);
    for (const auto& info : infos) {
      if (info.name() == "dram-1") return info.bytes();
    }
    return uint64_t{0};
  };
  EXPECT_EQ(bytes(), 16 * kMiB);
  one.Release();
  two.Release();
  Restart();
  EXPECT_EQ(bytes(), 16 * kMiB);
}

TEST_F(SegmentManagerTest, TwoWhoWaitForOneUnmountAreBothAnswered) {
  ASSERT_OK(StartStore());
  ASSERT_EQ(Do(MountCommand("extra", 32 * kMiB)).code(), 0u);
  ASSERT_NE(Put(1, 500'000), Version(0));
  ChunkRef reader = store_->Acquire(ns_, NameOf(1), now_);
  manager_->Execute(UnmountCommand("extra"));
  manager_->Execute(UnmountCommand("extra"));
  reader.Release();
  EXPECT_EQ(Await().code(), 0u);
  const wire::SegmentDone second = Await();
  // Or it came too late, and the segment was gone.
  EXPECT_TRUE(second.code() == 0 || CodeOf(second) == absl::StatusCode::kNotFound);
}

TEST_F(SegmentManagerTest, StopInTheMidstOfAnUnmountIsEndedByTheNextStart) {
  ASSERT_OK(StartStore());
  ASSERT_EQ(Do(MountCommand("extra", 32 * kMiB)).code(), 0u);
  ASSERT_NE(Put(1, 500'000), Version(0));
  {
    const ChunkRef reader = store_->Acquire(ns_, NameOf(1), now_);
    EXPECT_EQ(CodeOf(Do(UnmountCommand("extra", 1))), absl::StatusCode::kDeadlineExceeded);
    manager_->Stop();
  }
  EXPECT_TRUE(FileExists("extra"));
  Restart();
  EXPECT_FALSE(FileExists("extra"));
  EXPECT_EQ(Names().size(), 2u);
}

TEST_F(SegmentManagerTest, KilledInTheMidstOfAMountLeavesNothing) {
  for (const char* fault : {"store.mount.recorded:kill", "store.mount.formatted:kill"}) {
    InDyingProcess(fault, MountCommand("extra", 8 * kMiB), 0);
    EXPECT_THAT(Manifest(), HasSubstr("mounting file 8388608 never extra"));
    ASSERT_OK(StartStore()) << fault;
    EXPECT_THAT(Names(), ElementsAre("dram-0", "dram-1"));
    EXPECT_FALSE(FileExists("extra")) << fault;
    EXPECT_THAT(Manifest(), testing::Not(HasSubstr("extra")));
  }
  // From the moment that it is recorded it is there, though nobody was told yet.
  InDyingProcess("store.mount.mounted:kill", MountCommand("extra", 8 * kMiB), 0);
  ASSERT_OK(StartStore());
  EXPECT_THAT(Names(), ElementsAre("dram-0", "dram-1", "extra"));
  EXPECT_NE(Put(1, 100'000), Version(0));
}

TEST_F(SegmentManagerTest, KilledInTheMidstOfAnUnmountIsEndedByTheNextStart) {
  for (const char* fault : {"store.unmount.recorded:kill", "store.unmount.drained:kill",
                            "store.unmount.removed:kill"}) {
    Restart();
    ASSERT_EQ(Do(MountCommand("dram-1", 0)).code(), 0u) << fault;
    InDyingProcess(fault, UnmountCommand("dram-1"), 40);
    EXPECT_THAT(Manifest(), HasSubstr("unmounting file 8388608 never dram-1"));
    ASSERT_OK(StartStore()) << fault;
    EXPECT_THAT(Names(), ElementsAre("dram-0"));
    EXPECT_FALSE(FileExists("dram-1"));
    // What the other segment held is whole.
    int whole = 0;
    for (uint64_t n = 0; n < 40; ++n) {
      if (!Has(n)) continue;
      EXPECT_TRUE(HasBytes(n, 100'000));
      ++whole;
    }
    EXPECT_GT(whole, 10) << fault;
    RemoveAll();
  }
}

}  // namespace
}  // namespace cistern::store
