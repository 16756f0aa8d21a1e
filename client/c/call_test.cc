#include "client/c/call.h"

#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "client/c/structs.h"
#include "gtest/gtest.h"

namespace cistern::c {
namespace {

TEST(CallTest, AnErrorBecomesItsCodeAndTheThreadsMessage) {
  EXPECT_EQ(Call([] { return absl::NotFoundError("nowhere"); }), CISTERN_NOT_FOUND);
  EXPECT_STREQ(Message(), "nowhere");
  EXPECT_EQ(Call([] { return absl::OkStatus(); }), CISTERN_OK);
  EXPECT_STREQ(Message(), "");
}

TEST(CallTest, MessagesAreTheThreadsOwn) {
  EXPECT_EQ(Call([] { return absl::AbortedError("mine"); }), CISTERN_ABORTED);
  std::thread([] {
    EXPECT_STREQ(Message(), "");
    EXPECT_EQ(Call([] { return absl::AbortedError("its"); }), CISTERN_ABORTED);
  }).join();
  EXPECT_STREQ(Message(), "mine");
}

TEST(CallTest, NoExceptionComesOut) {
  EXPECT_EQ(Call([]() -> absl::Status { throw std::bad_alloc(); }), CISTERN_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(Message(), "out of memory");
  EXPECT_EQ(Call([]() -> absl::Status { throw std::length_error("too long"); }), CISTERN_INTERNAL);
  EXPECT_STREQ(Message(), "too long");
  EXPECT_EQ(Call([]() -> absl::Status { throw 7; }), CISTERN_INTERNAL);
  EXPECT_STREQ(Message(), "an exception");
}

TEST(CallTest, EveryStatusHasACode) {
  EXPECT_EQ(CodeOf(absl::PermissionDeniedError("")), CISTERN_PERMISSION_DENIED);
  EXPECT_EQ(CodeOf(absl::UnauthenticatedError("")), CISTERN_PERMISSION_DENIED);
  EXPECT_EQ(CodeOf(absl::OutOfRangeError("")), CISTERN_INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(absl::AlreadyExistsError("")), CISTERN_FAILED_PRECONDITION);
  EXPECT_EQ(CodeOf(absl::UnknownError("")), CISTERN_INTERNAL);
  EXPECT_EQ(CodeOf(absl::DataLossError("")), CISTERN_DATA_LOSS);
}

TEST(CallTest, DurationsSaturate) {
  EXPECT_EQ(FromMicros(1'500'000), absl::Milliseconds(1500));
  EXPECT_EQ(FromMicros(UINT64_MAX), absl::InfiniteDuration());
  EXPECT_EQ(FromTimeout(-1), absl::InfiniteDuration());
  EXPECT_EQ(FromTimeout(INT64_MIN), absl::InfiniteDuration());
  EXPECT_EQ(FromTimeout(0), absl::ZeroDuration());
  EXPECT_EQ(ToMicros(-absl::Seconds(1)), 0u);
}

// A caller compiled with a header in which the struct has grown.
struct Newer {
  cistern_call_options known;
  uint64_t added;
};

TEST(StructsTest, WhatIsNotGivenIsZero) {
  cistern_call_options out = {1, 2, 3};
  EXPECT_TRUE(ReadStruct<cistern_call_options>(nullptr, &out, "options").ok());
  EXPECT_EQ(out.struct_size + out.background + out.deadline_us, 0u);
}

TEST(StructsTest, AWrongSizeIsRefused) {
  cistern_call_options out;
  for (const uint32_t size : {0u, 1u, 15u, 17u, 4100u, 0xFFFFFFFFu}) {
    const cistern_call_options in = {size, 0, 0};
    EXPECT_EQ(ReadStruct(&in, &out, "options").code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

TEST(StructsTest, ALongerStructIsTakenIfTheRestIsZero) {
  Newer in = {{sizeof(Newer), 1, 77}, 0};
  cistern_call_options out;
  EXPECT_TRUE(ReadStruct(&in.known, &out, "options").ok());
  EXPECT_EQ(out.deadline_us, 77u);
  in.added = 1;
  const absl::Status status = ReadStruct(&in.known, &out, "options");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "options asks for what this library, older than the caller, does not know");
}

TEST(StructsTest, OnlyTheCallersBytesAreWritten) {
  struct {
    cistern_stats stats;
    uint64_t beyond;
  } memory = {};
  memory.beyond = 0x1234;
  memory.stats.struct_size = sizeof(cistern_stats);
  cistern_stats value = {};
  value.retries = 5;
  WriteStruct(&memory.stats, value);
  EXPECT_EQ(memory.stats.retries, 5u);
  EXPECT_EQ(memory.stats.struct_size, sizeof(cistern_stats));
  EXPECT_EQ(memory.beyond, 0x1234u);
  memory.stats.struct_size = sizeof(memory);  // a newer caller: the rest reads as 0
  WriteStruct(&memory.stats, value);
  EXPECT_EQ(memory.beyond, 0u);
}

TEST(StructsTest, EveryElementHasTheFirstsSize) {
  cistern_put_item items[2] = {};
  items[0].struct_size = items[1].struct_size = sizeof(cistern_put_item);
  items[1].unit = 9;
  cistern_put_item out;
  EXPECT_TRUE(ReadElement(items, 1, sizeof(cistern_put_item), &out, "items").ok());
  EXPECT_EQ(out.unit, 9u);
  items[1].struct_size = 8;
  EXPECT_EQ(ReadElement(items, 1, sizeof(cistern_put_item), &out, "items").code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cistern::c
