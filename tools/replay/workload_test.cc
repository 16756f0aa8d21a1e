#include "tools/replay/workload.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::replay {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Workload> Read(const std::string& text, uint64_t max_requests = 0) {
  std::istringstream in(text);
  return ReadTrace(in, "t", max_requests);
}

TEST(WorkloadTest, ReadsTheFieldsOfALine) {
  const auto workload = Read(
      "{\"timestamp\": 27, \"input_length\": 1030, \"output_length\": 5, \"hash_ids\": [7, 8, "
      "9]}\n");
  ASSERT_TRUE(workload.ok()) << workload.status();
  ASSERT_EQ(workload->size(), 1u);
  EXPECT_EQ((*workload)[0], (Request{27, 1030, 5, {7, 8, 9}}));
}

TEST(WorkloadTest, AcceptsBlankLinesUnknownFieldsAndAMissingLastNewline) {
  const auto workload = Read(
      "\n{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1],\"x\":{}}\r\n \n"
      "{\"timestamp\":2,\"input_length\":1,\"output_length\":1,\"hash_ids\":[2]}");
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->size(), 2u);
}

TEST(WorkloadTest, StopsAtTheRequestsAskedFor) {
  const std::string line =
      "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n";
  const auto workload = Read(line + line + "garbage", 2);
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->size(), 2u);
}

TEST(WorkloadTest, NamesTheLineAndWhatIsWrongWithIt) {
  const std::string good =
      "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n";
  const struct {
    const char* line;
    const char* message;
  } kCases[] = {
      {"garbage", "not a JSON object"},
      {"[1]", "not a JSON object"},
      {"{\"timestamp\":1}", "\"input_length\" is missing"},
      {"{\"timestamp\":-1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}",
       "\"timestamp\" is not a number"},
      {"{\"timestamp\":1,\"input_length\":4294967296,\"output_length\":1,\"hash_ids\":[1]}",
       "\"input_length\" is not a number"},
      {"{\"timestamp\":1,\"input_length\":1,\"output_length\":\"1\",\"hash_ids\":[1]}",
       "\"output_length\" is not a number"},
      {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[]}",
       "at least one block id"},
      {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":7}",
       "at least one block id"},
      {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1,-2]}",
       "not a number from 0 up"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = Read(good + c.line).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.line;
    EXPECT_THAT(std::string(status.message()), HasSubstr("t:2: ")) << c.line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.line;
  }
}

TEST(WorkloadTest, ReadsLongLines) {
  Workload workload = {{1, 5'120'000, 1, {}}, {2, 1, 1, {7}}};
  for (uint64_t i = 0; i < 10'000; ++i) workload[0].blocks.push_back(1'000'000 + i);
  std::ostringstream out;
  WriteTrace(workload, out);
  const auto back = Read(out.str());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, workload);
}

TEST(WorkloadTest, RefusesALineBeyondTheLimit) {
  const absl::Status status = Read(std::string(kMaxLineBytes + 1, ' ')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("t:1: a line of more than 8388608 bytes"));
}

TEST(WorkloadTest, RefusesAnEmptyTraceAndAMissingFile) {
  EXPECT_EQ(Read("\n").status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status status = ReadTraceFile("/nonexistent/trace.jsonl", 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/trace.jsonl"));
}

TEST(WorkloadTest, TheLastBlockOfAPromptIsPartlyFilled) {
  const Request request{0, 1030, 0, {7, 8, 9}};
  EXPECT_EQ(request.TokensOfFirst(0), 0u);
  EXPECT_EQ(request.TokensOfFirst(2), 1024u);
  EXPECT_EQ(request.TokensOfFirst(3), 1030u);
}

TEST(WorkloadTest, ReadsBackWhatItWrote) {
  const Workload workload = {{0, 513, 3, {0, 1}}, {5, 1, 0, {UINT64_MAX}}};
  std::ostringstream out;
  WriteTrace(workload, out);
  const auto back = Read(out.str());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, workload);
}

// The figures were counted with Python's json module and a set.
TEST(WorkloadTest, SummarizesTheRealTrace) {
  const auto workload = ReadTraceFile("tests/data/kv_trace_2000.jsonl", 0);
  ASSERT_TRUE(workload.ok()) << workload.status();
  const WorkloadSummary summary = Summarize(*workload);
  EXPECT_EQ(summary.requests, 2000u);
  EXPECT_EQ(summary.chunks, 54559u);
  EXPECT_EQ(summary.distinct_chunks, 38788u);
  EXPECT_EQ(summary.input_tokens, 27441774u);
  EXPECT_EQ(summary.longest_request_chunks, 241u);
}

}  // namespace
}  // namespace cistern::replay
