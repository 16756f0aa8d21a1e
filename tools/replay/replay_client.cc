// One client process of a replay: takes every n-th request as fast as it can, says every quarter
// of a second how far it is, and leaves its counts as JSON.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/string_view.h"
#include "client/client.h"
#include "tools/replay/replay_session.h"
#include "tools/replay/workload.h"

namespace cistern::replay {
namespace {

constexpr absl::Duration kProgressInterval = absl::Milliseconds(250);
// Runs that need more are got and put in several calls.
constexpr uint64_t kMaxBufferBytes = uint64_t{256} << 20;

struct Flags {
  std::string data;
  std::string token_file;
  std::string trace;
  std::string ns;
  std::string wire = "auto";
  std::string out;
  std::string progress;
  uint64_t requests = 0;
  uint64_t index = 0;
  uint64_t clients = 1;
  uint64_t chunk_bytes = 64 << 10;
  uint64_t seed = 1;
};

absl::StatusOr<Wire> WireOf(const std::string& name) {
  if (name == "auto") return Wire::kAuto;
  if (name == "tcp") return Wire::kTcp;
  if (name == "shm") return Wire::kShm;
  if (name == "rdma") return Wire::kRdma;
  return absl::InvalidArgumentError(absl::StrCat("no wire is called ", name));
}

// Replaces a file in one step, so that a reader never sees half of it.
absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  std::ofstream file(temporary);
  file << text << "\n";
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  CISTERN_ASSIGN_OR_RETURN(const Workload workload, ReadTraceFile(flags.trace, flags.requests));
  ClientOptions options;
  options.master_address = flags.data;
  options.pool_token_file = flags.token_file;
  CISTERN_ASSIGN_OR_RETURN(options.wire, WireOf(flags.wire));
  options.deadline = absl::Seconds(30);
  options.log_sink = [](Severity, std::string_view line) { std::cerr << line << "\n"; };
  CISTERN_ASSIGN_OR_RETURN(const auto client, Client::Connect(options));
  CISTERN_ASSIGN_OR_RETURN(
      const auto ns,
      client->OpenNamespace(
          flags.ns, absl::StrCat("replay;chunk=", flags.chunk_bytes, ";seed=", flags.seed)));
  const uint64_t longest = Summarize(workload).longest_request_chunks * flags.chunk_bytes;
  const uint64_t room =
      std::max(flags.chunk_bytes,
               std::min(longest, kMaxBufferBytes / flags.chunk_bytes * flags.chunk_bytes));
  CISTERN_ASSIGN_OR_RETURN(const Buffer buffer, client->AllocateBuffer(room));

  Clock& clock = Clock::Real();
  ReplaySession session(*ns, buffer, clock, {.chunk_bytes = flags.chunk_bytes, .seed = flags.seed});
  MonoTime report_at = clock.Mono();
  for (uint64_t i = flags.index; i < workload.size(); i += flags.clients) {
    session.Replay(workload[i]);
    if (clock.Mono() >= report_at) {
      CISTERN_RETURN_IF_ERROR(ReplaceFile(flags.progress, session.counts().ToJson()));
      report_at = clock.Mono() + kProgressInterval;
    }
  }
  ReplayCounts counts = session.counts();
  // What the library found corrupt and then got right from elsewhere was still a wrong byte.
  counts.verification_failures =
      std::max(counts.verification_failures, client->stats().verify_failures);
  CISTERN_RETURN_IF_ERROR(ReplaceFile(flags.progress, counts.ToJson()));
  return ReplaceFile(flags.out, counts.ToJson());
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("One client of a replay; started by tools/demo.", "replay_client");
  app.add_option("--data", flags.data, "the master's data port")->required();
  app.add_option("--token-file", flags.token_file, "the pool token");
  app.add_option("--trace", flags.trace, "the workload, JSON lines")->required();
  app.add_option("--namespace", flags.ns, "opened with a fingerprint of its own")->required();
  app.add_option("--wire", flags.wire, "auto, tcp, shm or rdma");
  app.add_option("--out", flags.out, "where the counts go at the end")->required();
  app.add_option("--progress", flags.progress, "where they go meanwhile")->required();
  app.add_option("--requests", flags.requests, "only the first so many; 0 = all");
  app.add_option("--index", flags.index, "the first request to take");
  app.add_option("--clients", flags.clients, "take every so many-th")->check(CLI::PositiveNumber);
  app.add_option("--chunk-bytes", flags.chunk_bytes, "bytes of a chunk")
      ->check(CLI::Range(kMinChunkBytes, kMaxChunkBytes));
  app.add_option("--seed", flags.seed, "of the chunks' bytes");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  std::cerr << "replay_client: " << StdView(status.message()) << "\n";
  return 1;
}

}  // namespace
}  // namespace cistern::replay

int main(int argc, char** argv) { return cistern::replay::Main(argc, argv); }
