#include "store/segment_manifest.h"

#include <sys/stat.h>

#include "base/fault.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using State = SegmentManifest::State;

constexpr uint64_t kMiB = uint64_t{1} << 20;

SegmentSpec Spec(const std::string& name, uint64_t bytes = 8 * kMiB) {
  SegmentSpec spec;
  spec.name = name;
  spec.bytes = bytes;
  return spec;
}
std::vector<std::string> NamesOf(const std::vector<SegmentSpec>& specs) {
  std::vector<std::string> names;
  for (const SegmentSpec& spec : specs) names.push_back(spec.name);
  return names;
}

TEST(SegmentManifestTest, IsKeptAsTextThatAnAdministratorCanRead) {
  TempDir dir;
  SegmentManifest manifest;
  manifest.Set(State::kMounted, Spec("extra one", 64 * kMiB));
  SegmentSpec memfd = Spec("fast");
  memfd.kind = SegmentKind::kMemfd;
  memfd.huge_pages = HugePages::kTry;
  manifest.Set(State::kUnmounting, memfd);
  ASSERT_OK(manifest.Save(dir.path()));
  EXPECT_EQ(ReadFile(dir / "segments"),
            "cistern-segments 1\n# Written by cistern-store. STATE KIND BYTES HUGE_PAGES NAME\n"
            "mounted file 67108864 never extra one\nunmounting memfd 8388608 try fast\n");
  ASSERT_OK_AND_ASSIGN(const SegmentManifest loaded, SegmentManifest::Load(dir.path()));
  ASSERT_THAT(loaded.entries(), SizeIs(2));
  EXPECT_EQ(loaded.entries()[0].state, State::kMounted);
  EXPECT_EQ(loaded.entries()[0].spec, Spec("extra one", 64 * kMiB));
  EXPECT_EQ(loaded.entries()[1].spec, memfd);
}

TEST(SegmentManifestTest, NoFileIsNoChange) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(SegmentManifest manifest, SegmentManifest::Load(dir.path()));
  EXPECT_THAT(manifest.entries(), IsEmpty());
  ASSERT_OK(manifest.Save(dir.path()));
  struct stat st;
  EXPECT_NE(stat((dir / "segments").c_str(), &st), 0) << "nothing to say, nothing written";
  // Once there was something, the empty file replaces it.
  manifest.Set(State::kMounted, Spec("a"));
  ASSERT_OK(manifest.Save(dir.path()));
  manifest.Erase("a");
  ASSERT_OK(manifest.Save(dir.path()));
  EXPECT_THAT(SegmentManifest::Load(dir.path())->entries(), IsEmpty());
}

TEST(SegmentManifestTest, DamageIsNamedWithItsLine) {
  TempDir dir;
  const char* const kBad[] = {
      "mounted file 8388608 never",          // no name
      "mounted tape 8388608 never a",        // kind
      "resting file 8388608 never a",        // state
      "mounted file many never a",           // size
      "mounted file 8388608 perhaps a",      // huge pages
      "mounted file 8388608 never ../a",     // name
      "mounted file 8388608 never .hidden",  // name
  };
  for (const std::string line : kBad) {
    WriteFile(dir / "segments", "cistern-segments 1\n\n" + line + "\n");
    EXPECT_THAT(SegmentManifest::Load(dir.path()),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("line 3")))
        << line;
  }
  WriteFile(dir / "segments",
            "cistern-segments 1\nmounted file 8388608 never a\nmounted file 8388608 never a\n");
  EXPECT_THAT(SegmentManifest::Load(dir.path()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("twice")));
  for (const std::string text : {"cistern-segments 2\n", "", "\xff\x00garbage"}) {
    WriteFile(dir / "segments", text);
    EXPECT_THAT(SegmentManifest::Load(dir.path()),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("first line")));
  }
  WriteFile(dir / "segments", std::string(2 * kMiB, 'x'));
  EXPECT_THAT(SegmentManifest::Load(dir.path()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("too long")));
}

TEST(SegmentManifestTest, ConfigurationFillsInNamesAndRefusesDoubles) {
  config::StoreConfig config;
  config.set_huge_pages("try");
  config.add_segment()->set_size_bytes(8 * kMiB);
  config.add_segment()->set_size_bytes(16 * kMiB);
  config.mutable_segment(1)->set_name("big");
  config.mutable_segment(1)->set_huge_pages("never");
  config.mutable_segment(1)->set_kind("memfd");
  config.mutable_segment(0)->set_huge_pages("inherit");
  ASSERT_OK_AND_ASSIGN(const auto specs, ConfiguredSegments(config));
  EXPECT_THAT(NamesOf(specs), ElementsAre("dram-0", "big"));
  EXPECT_EQ(specs[0].huge_pages, HugePages::kTry);
  EXPECT_EQ(specs[1].huge_pages, HugePages::kNever);
  EXPECT_EQ(specs[1].kind, SegmentKind::kMemfd);
  config.mutable_segment(1)->set_name("dram-0");
  EXPECT_THAT(ConfiguredSegments(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("two segments are called")));
  config.mutable_segment(1)->set_name("a\nb");
  EXPECT_FALSE(ConfiguredSegments(config).ok());
}

TEST(SegmentPlanTest, WhatWasMountedByHandIsOpenedAfterTheConfigurations) {
  SegmentManifest manifest;
  manifest.Set(State::kMounted, Spec("extra"));
  ASSERT_OK_AND_ASSIGN(const SegmentPlan plan,
                       PlanSegments({Spec("dram-0"), Spec("dram-1")}, manifest));
  EXPECT_THAT(NamesOf(plan.open), ElementsAre("dram-0", "dram-1", "extra"));
  EXPECT_THAT(plan.discard, IsEmpty());
  EXPECT_EQ(plan.after.ToText(), manifest.ToText());
}

TEST(SegmentPlanTest, WhatWasCutShortIsUndoneOrEnded) {
  SegmentManifest manifest;
  manifest.Set(State::kMounting, Spec("half-made"));
  manifest.Set(State::kUnmounting, Spec("half-gone"));
  manifest.Set(State::kUnmounting, Spec("dram-1"));
  ASSERT_OK_AND_ASSIGN(const SegmentPlan plan,
                       PlanSegments({Spec("dram-0"), Spec("dram-1")}, manifest));
  EXPECT_THAT(NamesOf(plan.open), ElementsAre("dram-0"));
  EXPECT_THAT(NamesOf(plan.discard), ElementsAre("dram-1", "half-made", "half-gone"));
  // Of the configuration: it stays unmounted; of the others nothing is left.
  ASSERT_THAT(plan.after.entries(), SizeIs(1));
  EXPECT_EQ(plan.after.entries()[0].spec.name, "dram-1");
  EXPECT_EQ(plan.after.entries()[0].state, State::kUnmounted);
  // The next start has nothing to do any more.
  ASSERT_OK_AND_ASSIGN(const SegmentPlan next,
                       PlanSegments({Spec("dram-0"), Spec("dram-1")}, plan.after));
  EXPECT_THAT(NamesOf(next.open), ElementsAre("dram-0"));
  EXPECT_THAT(next.discard, IsEmpty());
  EXPECT_THAT(next.remarks, ElementsAre(HasSubstr("stays unmounted")));
}

TEST(SegmentPlanTest, MountCutShortOfAConfiguredSegmentIsMadeAnew) {
  SegmentManifest manifest;
  manifest.Set(State::kMounting, Spec("dram-1", 64 * kMiB));
  ASSERT_OK_AND_ASSIGN(const SegmentPlan plan,
                       PlanSegments({Spec("dram-0"), Spec("dram-1")}, manifest));
  EXPECT_THAT(NamesOf(plan.discard), ElementsAre("dram-1"));
  EXPECT_THAT(plan.open, ElementsAre(Spec("dram-0"), Spec("dram-1")));
  EXPECT_THAT(plan.after.entries(), IsEmpty());
}

TEST(SegmentPlanTest, MountedByHandUnderAConfiguredNameKeepsItsOwnSize) {
  SegmentManifest manifest;
  manifest.Set(State::kMounted, Spec("dram-1", 64 * kMiB));
  ASSERT_OK_AND_ASSIGN(const SegmentPlan plan,
                       PlanSegments({Spec("dram-0"), Spec("dram-1")}, manifest));
  EXPECT_THAT(plan.open, ElementsAre(Spec("dram-0"), Spec("dram-1", 64 * kMiB)));
  EXPECT_THAT(plan.remarks, ElementsAre(HasSubstr("by hand")));
  // With the configuration's own it is the configuration's again.
  manifest.Set(State::kMounted, Spec("dram-1"));
  EXPECT_THAT(PlanSegments({Spec("dram-0"), Spec("dram-1")}, manifest)->after.entries(), IsEmpty());
}

TEST(SegmentPlanTest, UnmountedNameThatTheConfigurationDroppedIsForgotten) {
  SegmentManifest manifest;
  manifest.Set(State::kUnmounted, Spec("old"));
  ASSERT_OK_AND_ASSIGN(const SegmentPlan plan, PlanSegments({Spec("dram-0")}, manifest));
  EXPECT_THAT(plan.after.entries(), IsEmpty());
}

TEST(SegmentPlanTest, StoreWithoutAnySegmentDoesNotStart) {
  SegmentManifest manifest;
  manifest.Set(State::kUnmounted, Spec("dram-0"));
  EXPECT_THAT(PlanSegments({Spec("dram-0")}, manifest),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("unmounted by hand")));
}

}  // namespace
}  // namespace cistern::store
