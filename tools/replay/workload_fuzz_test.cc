// Any bytes are a workload or a status, never a crash; what was accepted is written and read back.
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tools/replay/random.h"
#include "tools/replay/workload.h"

namespace cistern::replay {
namespace {

void ReadAnything(const std::string& text) {
  std::istringstream in(text);
  const absl::StatusOr<Workload> workload = ReadTrace(in, "fuzz", 0);
  if (!workload.ok()) {
    ASSERT_EQ(workload.status().code(), absl::StatusCode::kInvalidArgument);
    return;
  }
  std::ostringstream out;
  WriteTrace(*workload, out);
  std::istringstream again(out.str());
  const absl::StatusOr<Workload> back = ReadTrace(again, "fuzz", 0);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(*back, *workload);
}

TEST(WorkloadFuzzTest, SeededCorpus) {
  const std::string line =
      "{\"timestamp\": 12, \"input_length\": 700, \"output_length\": 9, \"hash_ids\": [5, 6]}\n";
  Random random(20260101);
  for (int round = 0; round < 300; ++round) {
    std::string text = line + line;
    for (uint64_t edits = random.Below(4); edits > 0; --edits) {
      const size_t at = random.Below(text.size());
      switch (random.Below(3)) {
        case 0:
          text[at] = static_cast<char>(random.Next());
          break;
        case 1:
          text.erase(at, random.Below(8));
          break;
        default:
          text.insert(at, line.substr(0, random.Below(line.size())));
          break;
      }
      if (text.empty()) text = "{";
    }
    ReadAnything(text);
  }
}

}  // namespace
}  // namespace cistern::replay

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cistern::replay::ReadAnything(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
