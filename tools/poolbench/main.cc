// poolbench: how fast a pool is, beside what this machine can do at all.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <utility>

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
#include "tools/poolbench/process_stats.h"
#include "tools/poolbench/report.h"
#include "tools/poolbench/scenarios.h"

namespace cistern::poolbench {
namespace {

// Gets of at most this many bytes a call are set beside a bare round trip.
constexpr uint64_t kRoundTripBytes = 64 << 10;

// A limit, and for which part of a round's time it is measured.
struct Limit {
  std::string name;
  std::unique_ptr<Measurement> measurement;
  double share = 1;
};

absl::StatusOr<std::vector<Limit>> MakeLimits(const Case& one, const Options& options,
                                              Clock& clock) {
  std::vector<Limit> limits;
  const auto add = [&limits](const std::string& name, double share,
                             absl::StatusOr<std::unique_ptr<Measurement>> made) {
    if (made.ok()) limits.push_back({name, *std::move(made), share});
    return made.status();
  };
  const auto keys = static_cast<double>(one.batch);
  const uint64_t threads = options.threads;
  if (one.kind == Kind::kLookup) {
    const EchoBytes bytes = LookupBytes(one.batch);
    CISTERN_RETURN_IF_ERROR(add("bare TCP echo", 0.5, MakeTcpEcho(bytes, keys, threads, clock)));
    CISTERN_RETURN_IF_ERROR(add("gRPC echo", 0.5, MakeGrpcEcho(bytes, keys, threads, clock)));
    return limits;
  }
  if (one.kind == Kind::kGet && one.batch * one.chunk_bytes <= kRoundTripBytes) {
    CISTERN_RETURN_IF_ERROR(
        add("bare TCP round trip", 0.5,
            MakeTcpEcho(GetBytes(one.batch, one.chunk_bytes),
                        keys * static_cast<double>(one.chunk_bytes), threads, clock)));
  }
  const uint64_t bytes = options.working_set_bytes;
  const auto add_pair = [&] {
    return add("bare TCP pair", 1,
               MakeTcpPair(bytes, options.stores * kConnectionsPerStore, threads, clock));
  };
  const auto add_copies = [&] {
    CISTERN_RETURN_IF_ERROR(add("memcpy", 0.25, MakeCopy(bytes, false, threads, clock)));
    return add("memcpy and digest", 0.25, MakeCopy(bytes, true, threads, clock));
  };
  // The wire's own limit first.
  const bool sockets = options.wire == "tcp";
  CISTERN_RETURN_IF_ERROR(sockets ? add_pair() : add_copies());
  CISTERN_RETURN_IF_ERROR(sockets ? add_copies() : add_pair());
  return limits;
}

// Room for the working set below the low watermark and for leases on all of it.
absl::StatusOr<std::unique_ptr<pool::LocalPool>> StartPool(const Options& options,
                                                           uint64_t least_chunk_bytes,
                                                           const ScenarioEnv& env) {
  pool::LocalPoolOptions pool;
  pool.stores = static_cast<int>(options.stores);
  pool.pool_bytes = options.working_set_bytes / 2 * 5 + options.stores * (uint64_t{64} << 20);
  pool.expected_chunk_bytes = least_chunk_bytes;
  pool.interrupted = env.interrupted;
  return pool::LocalPool::Start(pool, env.clock);
}

absl::StatusOr<CaseResult> MeasureRate(const Case& one, const ScenarioEnv& env) {
  const Options& options = env.options;
  std::unique_ptr<pool::LocalPool> pool;
  CaseOptions case_options;
  case_options.working_set_bytes = options.working_set_bytes;
  case_options.threads = options.threads;
  case_options.origin =
      options.memory == "foreign" ? MemoryOrigin::kForeign : MemoryOrigin::kAllocated;
  if (options.master.empty()) {
    CISTERN_ASSIGN_OR_RETURN(pool, StartPool(options, one.chunk_bytes, env));
    case_options.master_cpu = [pid = pool->pids().front()] { return CpuSeconds(pid).value_or(0); };
  }
  CISTERN_ASSIGN_OR_RETURN(const auto client, ConnectTo(pool.get(), options));
  CaseResult result;
  result.what = one;
  result.ours.name = "ours";
  CISTERN_ASSIGN_OR_RETURN(auto ours, MakeMeasurement(one, *client, case_options, env.clock));
  std::vector<Limit> limits;
  if (options.baseline) {
    CISTERN_ASSIGN_OR_RETURN(limits, MakeLimits(one, options, env.clock));
  }
  const absl::Duration time = absl::Seconds(options.seconds);
  // One short turn of each that does not count: caches, connections, pages.
  CISTERN_RETURN_IF_ERROR(ours->Run(time / 10).status());
  for (Limit& limit : limits) {
    CISTERN_RETURN_IF_ERROR(limit.measurement->Run(time / 10).status());
    result.limits.push_back({limit.name});
  }
  std::vector<Round> rounds;
  for (uint64_t round = 0; round < options.rounds; ++round) {
    if (env.interrupted()) return absl::CancelledError("interrupted");
    CISTERN_ASSIGN_OR_RETURN(Round done, ours->Run(time));
    result.ours.Add(done);
    rounds.push_back(std::move(done));
    for (size_t i = 0; i < limits.size(); ++i) {
      CISTERN_ASSIGN_OR_RETURN(const Round bound,
                               limits[i].measurement->Run(time * limits[i].share));
      result.limits[i].Add(bound);
    }
  }
  result.figures = FiguresOf(one, rounds);
  return result;
}

// A pool for each case: what one leaves in it (a full index, a cut-up segment) is not the next
// one's to pay for.
absl::StatusOr<CaseResult> RunCase(const Case& one, const ScenarioEnv& env) {
  if (IsRate(one.kind)) return MeasureRate(one, env);
  CaseResult result;
  result.what = one;
  switch (one.kind) {
    case Kind::kOverload: {
      CISTERN_ASSIGN_OR_RETURN(result.figures, RunOverload(one, env));
      break;
    }
    case Kind::kFill: {
      CISTERN_ASSIGN_OR_RETURN(result.figures, RunFill(one, env));
      break;
    }
    case Kind::kReplay: {
      CISTERN_ASSIGN_OR_RETURN(result.figures, RunReplay(one, env));
      break;
    }
    default: {
      CISTERN_ASSIGN_OR_RETURN(result.figures, RunIndex(env));
      break;
    }
  }
  return result;
}

absl::StatusOr<Report> Measure(const ScenarioEnv& env) {
  const Options& options = env.options;
  Report report;
  report.machine = ThisMachine();
  report.kernel = ThisKernel();
  report.build_mode = std::string(StdView(BuildMode()));
  report.commit = options.commit.empty() ? std::string(StdView(CommitId())) : options.commit;
  report.load_before = LoadAverage();
  report.wire = options.wire;
  report.memory = options.memory;
  report.threads = options.threads;
  report.stores = options.stores;
  report.working_set_bytes = options.working_set_bytes;
  report.seconds = options.seconds;
  for (const Case& one : options.cases) {
    std::cerr << "poolbench: " << one.Title() << " ...\n";
    CISTERN_ASSIGN_OR_RETURN(CaseResult result, RunCase(one, env));
    report.cases.push_back(std::move(result));
  }
  report.load_after = LoadAverage();
  return report;
}

int Main(int argc, char** argv) {
  const ParsedOptions parsed = ParseOptions(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  ShutdownSignal signals;
  // A terminal that goes away ends us in good order too.
  signal(SIGHUP, [](int) { kill(getpid(), SIGTERM); });
  std::atomic<bool> ending{false};
  const ScenarioEnv env = {parsed.options, Clock::Real(), [&] {
                             if (!ending && signals.Wait(absl::ZeroDuration()) != 0) ending = true;
                             return ending.load();
                           }};
  const absl::StatusOr<Report> report = Measure(env);
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
