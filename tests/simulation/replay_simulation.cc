// replay_simulation --trace FILE [--stores N] [--requests N] [...]: replays a trace against a
// simulated pool (the master's real core, model stores) and prints how well it did.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "tests/simulation/trace_replay.h"

namespace {

constexpr char kUsage[] =
    "usage: replay_simulation --trace FILE [--stores N] [--requests N] [--pool-bytes N]\n"
    "         [--chunk-bytes N] [--interval-us N (0 = the trace's times)] [--put-delay-us N]\n"
    "         [--seed N] [--whole-chain 0|1] [--release 0|1]\n";

}  // namespace

int main(int argc, char** argv) {
  cistern::simulation::ReplayOptions options;
  std::string trace;
  int64_t requests = 0;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    int64_t number = 0;
    const bool is_number = absl::SimpleAtoi(value, &number) && number >= 0;
    if (flag == "--trace") {
      trace = value;
    } else if (!is_number) {
      std::fputs(kUsage, stderr);
      return 2;
    } else if (flag == "--stores") {
      options.stores = static_cast<int>(number);
    } else if (flag == "--requests") {
      requests = number;
    } else if (flag == "--pool-bytes") {
      options.pool_bytes = static_cast<uint64_t>(number);
    } else if (flag == "--chunk-bytes") {
      options.chunk_bytes = static_cast<uint32_t>(number);
    } else if (flag == "--interval-us") {
      options.interval = absl::Microseconds(number);
    } else if (flag == "--put-delay-us") {
      options.put_delay = absl::Microseconds(number);
    } else if (flag == "--seed") {
      options.seed = static_cast<uint64_t>(number);
    } else if (flag == "--whole-chain") {
      options.place_whole_chain = number != 0;
    } else if (flag == "--release") {
      options.release = number != 0;
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  const auto workload = cistern::replay::ReadTraceFile(trace, static_cast<uint64_t>(requests));
  if (!workload.ok()) {
    std::fprintf(stderr, "%s\n", workload.status().ToString().c_str());
    return 1;
  }
  const auto result = cistern::simulation::ReplayTrace(*workload, options);
  std::fputs(cistern::simulation::FormatReplay(options, result).c_str(), stdout);
  return result.wrong == 0 && result.differences.empty() && result.leaks.empty() ? 0 : 1;
}
