#include "base/status.h"

#include <cerrno>

#include "absl/strings/cord.h"
#include "base/test_util.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

absl::Status ReturnIfError(const absl::Status& status) {
  CISTERN_RETURN_IF_ERROR(status);
  return absl::UnknownError("went on");
}

absl::StatusOr<int> AddOne(const absl::StatusOr<int>& in) {
  CISTERN_ASSIGN_OR_RETURN(const int value, in);
  return value + 1;
}

TEST(StatusMacrosTest, ReturnOnlyErrors) {
  EXPECT_THAT(ReturnIfError(absl::OkStatus()), StatusIs(StatusCode::kUnknown));
  EXPECT_THAT(ReturnIfError(absl::NotFoundError("x")), StatusIs(StatusCode::kNotFound));
}

TEST(StatusMacrosTest, AssignTheValueOrReturnTheError) {
  ASSERT_OK_AND_ASSIGN(const int value, AddOne(41));
  EXPECT_EQ(value, 42);
  EXPECT_THAT(AddOne(absl::AbortedError("x")), StatusIs(StatusCode::kAborted));
}

TEST(AnnotateTest, PutsTheContextInFrontAndKeepsTheRest) {
  absl::Status status = absl::DataLossError("bad digest");
  status.SetPayload("cistern/test", absl::Cord("payload"));
  const absl::Status annotated = Annotate(status, "chunk 7");
  EXPECT_EQ(annotated.code(), StatusCode::kDataLoss);
  EXPECT_EQ(annotated.message(), "chunk 7: bad digest");
  EXPECT_EQ(annotated.GetPayload("cistern/test"), absl::Cord("payload"));
}

TEST(AnnotateTest, LeavesOkAlone) { EXPECT_OK(Annotate(absl::OkStatus(), "context")); }

TEST(ErrnoStatusTest, TheCodeNamesTheNextStep) {
  EXPECT_THAT(ErrnoStatus(ENOENT, "/x"), StatusIs(StatusCode::kNotFound, HasSubstr("/x")));
  EXPECT_THAT(ErrnoStatus(EACCES, "/x"), StatusIs(StatusCode::kPermissionDenied));
  EXPECT_THAT(ErrnoStatus(ENOSPC, "/x"), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(ErrnoStatus(EMFILE, "/x"), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(ErrnoStatus(ECONNREFUSED, "dial"), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(ErrnoStatus(ECONNRESET, "read"), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(ErrnoStatus(ECONNABORTED, "accept"), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(ErrnoStatus(EPIPE, "write"), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(ErrnoStatus(ETIMEDOUT, "dial"), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(ErrnoStatus(EADDRINUSE, "bind"), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(ErrnoStatus(EIO, "read"), StatusIs(StatusCode::kDataLoss, HasSubstr("Input/output")));
}

TEST(CheckDeathTest, AbortsWithThePlaceAndTheCondition) {
  const int two = 2;
  CISTERN_CHECK(two == 2);
  EXPECT_DEATH(CISTERN_CHECK(two == 3), "status_test.cc:[0-9]+: check failed: two == 3");
}

}  // namespace
}  // namespace cistern
