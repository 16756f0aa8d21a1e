// poolbench: how fast a pool is, beside what this machine can do at all.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/build_info.h"
#include "base/clock.h"
#include "base/daemon.h"
#include "base/status.h"
#include "base/string_view.h"
#include "client/client.h"
#include "tools/pool/local_pool.h"
#include "tools/poolbench/cases.h"
#include "tools/poolbench/limits.h"
#include "tools/poolbench/options.h"
#include "tools/poolbench/report.h"

namespace cistern::poolbench {
namespace {

constexpr int kConnectionsPerStore = 2;

Wire WireOf(const std::string& name) {
  return name == "tcp"    ? Wire::kTcp
         : name == "shm"  ? Wire::kShm
         : name == "rdma" ? Wire::kRdma
                          : Wire::kAuto;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Room for the working set below the low watermark and for leases on all of it.
absl::StatusOr<std::unique_ptr<pool::LocalPool>> StartPool(const Options& options,
                                                           uint64_t least_chunk_bytes,
                                                           ShutdownSignal& signals) {
  pool::LocalPoolOptions pool;
  pool.stores = static_cast<int>(options.stores);
  pool.pool_bytes = options.working_set_bytes / 2 * 5 + options.stores * (uint64_t{64} << 20);
  pool.expected_chunk_bytes = least_chunk_bytes;
  pool.interrupted = [&signals] { return signals.Wait(absl::ZeroDuration()) != 0; };
  return pool::LocalPool::Start(pool, Clock::Real());
}

absl::StatusOr<CaseResult> MeasureCase(const Case& one, const Options& options, Client& client,
                                       ShutdownSignal& signals) {
  Clock& clock = Clock::Real();
  const absl::Duration time = absl::Seconds(options.seconds);
  CaseResult result{one, {"ours", {}}, {}};
  CISTERN_ASSIGN_OR_RETURN(
      auto ours, MakeMeasurement(one, client, options.working_set_bytes, options.threads, clock));
  std::vector<std::unique_ptr<Measurement>> limits;
  if (options.baseline && one.kind == Kind::kLookup) {
    CISTERN_ASSIGN_OR_RETURN(auto bare, MakeTcpEcho(one.batch, options.threads, clock));
    CISTERN_ASSIGN_OR_RETURN(auto grpc, MakeGrpcEcho(one.batch, options.threads, clock));
    limits.push_back(std::move(bare));
    limits.push_back(std::move(grpc));
    result.limits = {{"bare TCP echo", {}}, {"gRPC echo", {}}};
  } else if (options.baseline) {
    CISTERN_ASSIGN_OR_RETURN(
        auto bare, MakeTcpPair(options.working_set_bytes, options.stores * kConnectionsPerStore,
                               options.threads, clock));
    limits.push_back(std::move(bare));
    result.limits = {{"bare TCP pair", {}}};
  }
  // One short turn of each that does not count: caches, connections, pages.
  CISTERN_RETURN_IF_ERROR(ours->Round(time / 10).status());
  for (auto& limit : limits) CISTERN_RETURN_IF_ERROR(limit->Round(time / 10).status());
  for (uint64_t round = 0; round < options.rounds; ++round) {
    if (signals.Wait(absl::ZeroDuration()) != 0) return absl::CancelledError("interrupted");
    CISTERN_ASSIGN_OR_RETURN(const double rate, ours->Round(time));
    result.ours.rounds.push_back(rate);
    for (size_t i = 0; i < limits.size(); ++i) {
      CISTERN_ASSIGN_OR_RETURN(const double bound, limits[i]->Round(time));
      result.limits[i].rounds.push_back(bound);
    }
  }
  return result;
}

absl::StatusOr<Report> Measure(const Options& options, ShutdownSignal& signals) {
  Report report;
  report.machine = DescribeMachine(ReadFile("/proc/cpuinfo"), ReadFile("/proc/meminfo"),
                                   static_cast<int>(std::thread::hardware_concurrency()));
  report.build_mode = std::string(StdView(BuildMode()));
  report.commit = options.commit.empty() ? std::string(StdView(CommitId())) : options.commit;
  report.wire = options.wire;
  report.threads = options.threads;
  report.stores = options.stores;
  report.working_set_bytes = options.working_set_bytes;
  report.seconds = options.seconds;
  for (const Case& one : options.cases) {
    // A pool for each case: what one leaves in it (a full index, a cut-up segment) is not the next
    // one's to pay for.
    std::unique_ptr<pool::LocalPool> pool;
    ClientOptions client_options;
    client_options.wire = WireOf(options.wire);
    client_options.connections_per_store = kConnectionsPerStore;
    client_options.deadline = absl::Seconds(10);
    client_options.master_address = options.master;
    client_options.pool_token_file = options.token_file;
    if (options.master.empty()) {
      CISTERN_ASSIGN_OR_RETURN(pool, StartPool(options, one.chunk_bytes, signals));
      client_options.master_address = pool->connection().data;
      client_options.pool_token_file = pool->connection().token_file;
    }
    CISTERN_ASSIGN_OR_RETURN(const auto client, Client::Connect(client_options));
    std::cerr << "poolbench: " << one.Title() << " ...\n";
    CISTERN_ASSIGN_OR_RETURN(CaseResult result, MeasureCase(one, options, *client, signals));
    report.cases.push_back(std::move(result));
  }
  return report;
}

int Main(int argc, char** argv) {
  const ParsedOptions parsed = ParseOptions(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  ShutdownSignal signals;
  // A terminal that goes away ends us in good order too.
  signal(SIGHUP, [](int) { kill(getpid(), SIGTERM); });
  const absl::StatusOr<Report> report = Measure(parsed.options, signals);
  if (!report.ok()) {
    std::cerr << "poolbench: " << StdView(report.status().message()) << "\n";
    return 1;
  }
  std::cout << ReportTable(*report);
  if (parsed.options.json.empty()) return 0;
  std::ofstream out(parsed.options.json);
  out << ReportJson(*report) << "\n";
  out.close();
  if (out) return 0;
  std::cerr << "poolbench: cannot write " << parsed.options.json << "\n";
  return 1;
}

}  // namespace
}  // namespace cistern::poolbench

int main(int argc, char** argv) { return cistern::poolbench::Main(argc, argv); }
