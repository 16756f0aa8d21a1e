// The demo's driver, started by tools/demo once everything is built:
//
//   1. read or make the workload, choose the pool's size
//   2. start one master and the stores (tools/pool)
//   3. start the client processes, follow them: progress, chunks held, daemons alive
//   4. the table, and what `cisternctl stats` says
//   5. remove everything, check that nothing leaked, stop
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/build_info.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/daemon.h"
#include "base/status.h"
#include "base/string_view.h"
#include "proto/config.pb.h"
#include "tools/ctl/admin_client.h"
#include "tools/ctl/render.h"
#include "tools/ctl/table.h"
#include "tools/pool/child_process.h"
#include "tools/pool/local_pool.h"
#include "tools/replay/chat_generator.h"
#include "tools/replay/demo_options.h"
#include "tools/replay/demo_report.h"
#include "tools/replay/lru_reference.h"
#include "tools/replay/replay_session.h"
#include "tools/replay/workload.h"

namespace cistern::replay {
namespace {

constexpr char kSegmentParent[] = "/dev/shm";
constexpr char kNamespace[] = "demo";
constexpr absl::Duration kSampleInterval = absl::Milliseconds(200);
constexpr absl::Duration kProgressInterval = absl::Seconds(3);
constexpr absl::Duration kSettleTime = absl::Seconds(5);

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// One run of the demo. Single-threaded.
class Demo {
 public:
  Demo(const DemoOptions& options, ShutdownSignal& signals, Clock& clock)
      : options_(options), signals_(signals), clock_(clock) {}

  absl::Status Run();
  // The signal that ended it, 0 if none did.
  int signal() const { return signal_; }

 private:
  absl::Status Prepare();
  absl::Status StartPool();
  absl::Status StartClients();
  absl::Status FollowClients();
  absl::Status Sample(bool show);
  absl::StatusOr<ReplayCounts> Collect(const std::string& suffix, bool all_must_be_there);
  absl::Status Settle();
  absl::Status Report();
  void SayHowToTalkToIt() const;
  absl::Status RemoveEverything();
  // True once a signal came; waits for one up to `timeout`.
  bool Interrupted(absl::Duration timeout);
  std::string ClientFile(size_t client, const std::string& suffix) const {
    return absl::StrCat(pool_->dir(), "/client-", client, suffix);
  }

  const DemoOptions options_;
  ShutdownSignal& signals_;
  Clock& clock_;
  int signal_ = 0;
  Workload workload_;
  WorkloadSummary summary_;
  uint64_t pool_bytes_ = 0;
  MonoTime started_;
  // Clients go before the pool that they use.
  std::unique_ptr<pool::LocalPool> pool_;
  std::vector<std::unique_ptr<pool::ChildProcess>> clients_;
  std::unique_ptr<ctl::AdminClient> admin_;
  ChunksHeld held_;
  DemoResult result_;
};

bool Demo::Interrupted(absl::Duration timeout) {
  if (signal_ == 0) signal_ = std::max(0, signals_.Wait(timeout));
  return signal_ != 0;
}

absl::Status Demo::Run() {
  CISTERN_RETURN_IF_ERROR(Prepare());
  CISTERN_RETURN_IF_ERROR(StartPool());
  CISTERN_RETURN_IF_ERROR(StartClients());
  CISTERN_RETURN_IF_ERROR(FollowClients());
  CISTERN_RETURN_IF_ERROR(Report());
  const ReplayCounts& counts = result_.counts;
  const absl::Status wrong = counts.verification_failures == 0 && counts.errors == 0
                                 ? absl::OkStatus()
                                 : absl::DataLossError(absl::StrCat(
                                       counts.verification_failures, " verification failures, ",
                                       counts.errors, " errors: ", counts.first_error));
  if (options_.keep) {
    pool_->Keep();
    SayHowToTalkToIt();
    return wrong;
  }
  CISTERN_RETURN_IF_ERROR(RemoveEverything());
  clients_.clear();
  CISTERN_RETURN_IF_ERROR(pool_->Stop());
  return wrong;
}

absl::Status Demo::Prepare() {
  if (options_.trace.empty()) {
    ChatOptions chat;
    chat.requests = options_.requests == 0 ? kGeneratedRequests : options_.requests;
    chat.seed = options_.seed;
    workload_ = GenerateChat(chat);
  } else {
    CISTERN_ASSIGN_OR_RETURN(workload_, ReadTraceFile(options_.trace, options_.requests));
  }
  summary_ = Summarize(workload_);
  CISTERN_ASSIGN_OR_RETURN(pool_bytes_,
                           ChoosePoolBytes(options_, summary_, FreeBytes(kSegmentParent)));
  std::cout << "demo: " << ctl::Count(summary_.requests) << " requests ("
            << (options_.trace.empty() ? absl::StrCat("chat sessions, seed ", options_.seed)
                                       : options_.trace)
            << "), " << ctl::Count(summary_.chunks) << " chunks of "
            << ctl::Bytes(options_.chunk_bytes) << ", " << ctl::Count(summary_.distinct_chunks)
            << " distinct: " << ctl::Bytes(summary_.distinct_chunks * options_.chunk_bytes)
            << "; the pool has " << ctl::Bytes(pool_bytes_) << " in " << options_.stores
            << " stores\n"
            << std::flush;
  return absl::OkStatus();
}

absl::Status Demo::StartPool() {
  pool::LocalPoolOptions pool;
  pool.stores = static_cast<int>(options_.stores);
  pool.pool_bytes = pool_bytes_;
  pool.expected_chunk_bytes = options_.chunk_bytes;
  pool.segment_parent = kSegmentParent;
  pool.outlive = options_.keep;
  pool.master_set = {"heartbeat=100ms"};  // the figures of the stores come with heartbeats
  pool.interrupted = [this] { return Interrupted(absl::ZeroDuration()); };
  CISTERN_ASSIGN_OR_RETURN(pool_, pool::LocalPool::Start(pool, clock_));
  std::cout << "demo: the pool is up: master " << pool_->connection().data << "; folders "
            << pool_->dir() << " and " << pool_->segment_dir() << "\n"
            << std::flush;
  CISTERN_ASSIGN_OR_RETURN(admin_, ctl::AdminClient::Make(pool_->connection(), absl::Seconds(10)));
  return absl::OkStatus();
}

absl::Status Demo::StartClients() {
  const std::string trace = pool_->dir() + "/workload.jsonl";
  {
    std::ofstream out(trace);
    WriteTrace(workload_, out);
    out.close();
    if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", trace));
  }
  CISTERN_ASSIGN_OR_RETURN(const std::string program,
                           pool::FindProgram("replay_client", "tools/replay", ""));
  started_ = clock_.Mono();
  for (size_t i = 0; i < options_.clients; ++i) {
    pool::ChildProcess::Options child{.name = absl::StrCat("client-", i),
                                      .log_path = ClientFile(i, ".log")};
    child.argv = {program,
                  "--data",
                  pool_->connection().data,
                  "--token-file",
                  pool_->connection().token_file,
                  "--trace",
                  trace,
                  "--namespace",
                  kNamespace,
                  "--wire",
                  options_.wire,
                  "--index",
                  absl::StrCat(i),
                  "--clients",
                  absl::StrCat(options_.clients),
                  "--chunk-bytes",
                  absl::StrCat(options_.chunk_bytes),
                  "--seed",
                  absl::StrCat(options_.seed),
                  "--progress",
                  ClientFile(i, ".progress"),
                  "--out",
                  ClientFile(i, ".json")};
    CISTERN_ASSIGN_OR_RETURN(auto client, pool::ChildProcess::Start(std::move(child), clock_));
    clients_.push_back(std::move(client));
  }
  return absl::OkStatus();
}

// The clients' counts so far (or at the end), summed.
absl::StatusOr<ReplayCounts> Demo::Collect(const std::string& suffix, bool all_must_be_there) {
  ReplayCounts sum;
  for (size_t i = 0; i < clients_.size(); ++i) {
    const absl::StatusOr<ReplayCounts> counts =
        ReplayCounts::FromJson(ReadFile(ClientFile(i, suffix)));
    if (counts.ok()) {
      sum.Merge(*counts);
    } else if (all_must_be_there) {
      return Annotate(counts.status(), ClientFile(i, suffix));
    }
  }
  return sum;
}

absl::Status Demo::Sample(bool show) {
  CISTERN_ASSIGN_OR_RETURN(const ReplayCounts counts, Collect(".progress", false));
  CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply stats, admin_->Stats());
  const uint64_t evictions = Evictions(stats.pool().evictions_by_cause());
  held_.Sample(counts.requests, stats.pool().chunk_count(), evictions);
  if (!show) return absl::OkStatus();
  std::cout << absl::StrFormat(
                   "demo: %4.0f s  %s of %s requests; leading runs %s; put %s, got %s; %s chunks "
                   "held, %s evicted; wrong bytes %u",
                   absl::ToDoubleSeconds(clock_.Mono() - started_), ctl::Count(counts.requests),
                   ctl::Count(summary_.requests),
                   ctl::Ratio(counts.prefix_hits, counts.chunks_looked_up),
                   ctl::Bytes(counts.bytes_put), ctl::Bytes(counts.bytes_got),
                   ctl::Count(stats.pool().chunk_count()), ctl::Count(evictions),
                   counts.verification_failures)
            << "\n"
            << std::flush;
  return absl::OkStatus();
}

absl::Status Demo::FollowClients() {
  MonoTime show_at = started_ + kProgressInterval;
  size_t running = clients_.size();
  while (running > 0) {
    if (Interrupted(kSampleInterval)) return absl::CancelledError("interrupted");
    CISTERN_RETURN_IF_ERROR(pool_->CheckAlive());
    running = 0;
    for (auto& client : clients_) {
      if (client->Running()) {
        ++running;
      } else if (client->exit_code() != 0) {
        return absl::InternalError(absl::StrCat(client->name(), " ", client->Fate(),
                                                "; the end of its log:\n", client->LogTail()));
      }
    }
    if (running == 0) result_.elapsed = clock_.Mono() - started_;
    const bool show = running > 0 && clock_.Mono() >= show_at;
    if (show) show_at = show_at + kProgressInterval;
    CISTERN_RETURN_IF_ERROR(Sample(show));
  }
  CISTERN_ASSIGN_OR_RETURN(result_.counts, Collect(".json", true));
  return absl::OkStatus();
}

// Waits until the stores' heartbeats tell of all that the index knows.
absl::Status Demo::Settle() {
  const MonoTime end = clock_.Mono() + kSettleTime;
  while (true) {
    CISTERN_ASSIGN_OR_RETURN(result_.stats, admin_->Stats());
    uint64_t in_stores = 0;
    for (const admin::StoreStats& store : result_.stats.stores()) {
      for (const admin::TierStats& tier : store.tiers()) in_stores += tier.chunk_count();
    }
    if (in_stores == result_.stats.pool().chunk_count() || clock_.Mono() >= end) {
      return absl::OkStatus();
    }
    if (Interrupted(kSampleInterval)) return absl::CancelledError("interrupted");
  }
}

absl::Status Demo::Report() {
  CISTERN_RETURN_IF_ERROR(Settle());
  config::MasterConfig config;
  const auto loaded = LoadConfig(pool::MasterToml(pool_->dir()), "master.toml", {}, &config);
  if (!loaded.ok()) return loaded.status();
  result_.mean_chunks_held = held_.mean();
  result_.wire = WiresUsed(result_.stats);
  result_.commit = options_.commit.empty() ? std::string(StdView(CommitId())) : options_.commit;
  result_.build_mode = std::string(StdView(BuildMode()));
  result_.clients = options_.clients;
  result_.chunk_bytes = options_.chunk_bytes;
  result_.pool_bytes = pool_bytes_;
  result_.distinct_chunks = summary_.distinct_chunks;
  result_.prefill_tokens_per_second = options_.prefill_tokens_per_second;
  result_.lru_of_mean = ReplayExactLru(workload_, static_cast<uint64_t>(result_.mean_chunks_held));
  result_.lru_of_bytes_chunks =
      ChunksAtShare(result_.stats, (config.high_watermark() + config.low_watermark()) / 2);
  result_.lru_of_bytes = ReplayExactLru(workload_, result_.lru_of_bytes_chunks);
  std::cout << "\n"
            << DemoTable(result_) << "\ncisternctl stats:\n\n"
            << ctl::RenderStats(result_.stats) << "\n"
            << std::flush;
  if (result_.build_mode != "opt") {
    std::cout << "demo: this is a " << result_.build_mode
              << " build: its times say nothing about an optimised one\n";
  }
  if (options_.json.empty()) return absl::OkStatus();
  std::ofstream out(options_.json);
  out << DemoJson(result_) << "\n";
  out.close();
  return out ? absl::OkStatus()
             : absl::UnavailableError(absl::StrCat("cannot write ", options_.json));
}

void Demo::SayHowToTalkToIt() const {
  std::string pids;
  for (pid_t pid : pool_->pids()) absl::StrAppend(&pids, " ", pid);
  std::cout << "demo: the pool stays up. Talk to it:\n"
            << "  .bazel/bin/tools/ctl/cisternctl --endpoints " << pool_->master_endpoints_file()
            << " --token-file " << pool_->connection().token_file << " stats\n"
            << "and end it:\n"
            << "  kill" << pids << "; rm -rf " << pool_->dir() << " " << pool_->segment_dir()
            << "\n";
}

absl::Status Demo::RemoveEverything() {
  admin::RemoveChunksRequest everything;
  everything.set_all_in_pool(true);
  everything.set_force(true);
  CISTERN_RETURN_IF_ERROR(admin_->RemoveChunks(everything).status());
  const MonoTime end = clock_.Mono() + kSettleTime;
  while (true) {
    CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply stats, admin_->Stats());
    CISTERN_ASSIGN_OR_RETURN(const admin::SegmentsReply segments, admin_->Segments());
    const std::vector<std::string> leaks = Leaks(stats, segments);
    if (leaks.empty()) {
      std::cout << "demo: everything removed: 0 chunks, 0 bytes, 0 leases, all extents free, "
                   "0 connections\n";
      return absl::OkStatus();
    }
    if (clock_.Mono() >= end) {
      std::string message = "LEAKED after everything was removed:";
      for (const std::string& leak : leaks) absl::StrAppend(&message, "\n  ", leak);
      return absl::InternalError(message);
    }
    if (Interrupted(kSampleInterval)) return absl::CancelledError("interrupted");
  }
}

int Main(int argc, char** argv) {
  const ParsedDemoOptions parsed = ParseDemoOptions(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  ShutdownSignal signals;
  // A terminal that goes away ends us in good order too.
  signal(SIGHUP, [](int) { kill(getpid(), SIGTERM); });
  absl::Status status;
  int ended_by = 0;
  {
    Demo demo(parsed.options, signals, Clock::Real());
    status = demo.Run();
    ended_by = demo.signal();
    if (ended_by != 0) std::cout << "demo: interrupted; cleaning up\n" << std::flush;
  }
  if (ended_by != 0) return 128 + ended_by;
  if (status.ok()) return 0;
  std::cerr << "demo: " << StdView(status.message()) << "\n";
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace
}  // namespace cistern::replay

int main(int argc, char** argv) { return cistern::replay::Main(argc, argv); }
