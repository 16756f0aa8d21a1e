#include "tools/replay/demo_options.h"

#include <sys/statvfs.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/ids.h"
#include "base/string_view.h"
#include "tools/output_path.h"

namespace cistern::replay {
namespace {

// "64KiB" or a number.
CLI::Option* AddSize(CLI::App& app, const std::string& name, uint64_t& value,
                     const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [&value, name](const std::string& text) {
            const absl::StatusOr<uint64_t> bytes = ParseSize(text);
            if (!bytes.ok()) {
              throw CLI::ValidationError(name, std::string(StdView(bytes.status().message())));
            }
            value = *bytes;
          },
          help)
      ->type_name("SIZE");
}

// The library's own check for a positive number answers with the largest double written out.
CLI::Validator AtLeastOne() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        double value = 0;
        const bool good = absl::SimpleAtod(text, &value) && value >= 1;
        return good ? "" : absl::StrCat("'", text, "' is not a number of 1 or more");
      },
      "NUMBER");
}

// Found now, not when the results of a long run are to be written.
void CheckJsonPath(const std::string& path) {
  if (path.empty()) return;
  const absl::Status good = CheckOutputPath(path);
  if (!good.ok()) throw CLI::ValidationError("--json", std::string(StdView(good.message())));
}

void AddFlags(CLI::App& app, DemoOptions& options) {
  app.add_option("--trace", options.trace, "a workload in the public KV-trace format")
      ->check(CLI::ExistingFile);
  app.add_option("--requests", options.requests, "replay only the first so many")
      ->check(AtLeastOne());
  app.add_option("--clients", options.clients, "client processes")->check(CLI::Range(1, 64));
  app.add_option("--stores", options.stores, "stores")->check(CLI::Range(1, 64));
  AddSize(app, "--chunk-bytes", options.chunk_bytes, "bytes of a chunk");
  AddSize(app, "--pool-bytes", options.pool_bytes, "bytes of the pool, over all stores");
  app.add_option("--wire", options.wire, "the wire to use")
      ->check(CLI::IsMember({"auto", "tcp", "shm", "rdma"}));
  app.add_option("--seed", options.seed, "of the generated workload and the chunks' bytes");
  app.add_flag("--keep", options.keep, "leave the pool up");
  app.add_option("--json", options.json, "write the results there as JSON");
  app.add_option("--commit", options.commit)->group("");  // hidden
  app.add_option("--prefill-tokens-per-second", options.prefill_tokens_per_second,
                 "what a prompt token costs to compute")
      ->check(AtLeastOne());
}

}  // namespace

ParsedDemoOptions ParseDemoOptions(int argc, const char* const* argv) {
  ParsedDemoOptions parsed;
  CLI::App app("The main job of a pool, for a visitor; see tools/demo --help.", "demo");
  AddFlags(app, parsed.options);
  try {
    app.parse(argc, argv);
    if (parsed.options.chunk_bytes < kMinChunkBytes ||
        parsed.options.chunk_bytes > kMaxChunkBytes) {
      throw CLI::ValidationError("--chunk-bytes", "a chunk has 4 KiB to 1 GiB");
    }
    CheckJsonPath(parsed.options.json);
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = app.exit(error) == 0 ? 0 : 2;
  }
  return parsed;
}

std::vector<std::string> DemoFlagNames() {
  CLI::App app;
  DemoOptions options;
  AddFlags(app, options);
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) names.push_back("--" + option->get_single_name());
  }
  return names;
}

absl::StatusOr<uint64_t> ChoosePoolBytes(const DemoOptions& options,
                                         const WorkloadSummary& workload, uint64_t free_bytes) {
  const uint64_t least = options.stores * std::max(kMinSegmentBytes, 4 * options.chunk_bytes);
  uint64_t bytes = options.pool_bytes;
  if (bytes == 0) {
    bytes = std::clamp(workload.distinct_chunks * options.chunk_bytes / 5, least,
                       std::max(least, kMaxDefaultPoolBytes));
  }
  if (bytes < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--pool-bytes: ", options.stores, " stores need ", FormatSize(least), " at least"));
  }
  if (bytes > options.stores * kMaxSegmentBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pool-bytes: ", options.stores, " stores hold ",
                     FormatSize(options.stores * kMaxSegmentBytes), " at most"));
  }
  if (bytes > free_bytes / 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the pool would take ", FormatSize(bytes), ", more than half of the ",
        FormatSize(free_bytes), " of memory that are free; choose a smaller --pool-bytes",
        options.pool_bytes == 0 ? " or fewer --requests" : ""));
  }
  return bytes;
}

uint64_t FreeBytes(const std::string& segment_parent) {
  uint64_t free_bytes = UINT64_MAX;
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  std::string unit;
  while (meminfo >> name >> kib) {
    std::getline(meminfo, unit);
    if (name == "MemAvailable:") free_bytes = kib * 1024;
  }
  struct statvfs fs {};
  if (statvfs(segment_parent.c_str(), &fs) == 0) {
    free_bytes = std::min<uint64_t>(free_bytes, uint64_t{fs.f_bavail} * fs.f_frsize);
  }
  return free_bytes;
}

}  // namespace cistern::replay
