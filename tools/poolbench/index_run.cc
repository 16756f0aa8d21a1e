#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/secret_file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "tools/ctl/admin_client.h"
#include "tools/ctl/table.h"
#include "tools/poolbench/limits.h"
#include "tools/poolbench/played_session_grpc.h"
#include "tools/poolbench/process_stats.h"
#include "tools/poolbench/scenarios.h"
#include "tools/poolbench/threads.h"
#include "tools/replay/random.h"

namespace cistern::poolbench {
namespace {

constexpr uint32_t kChunkBytes = 64 << 10;
// Between the watermarks: nothing is evicted before more comes.
constexpr double kFillAtStart = 0.94;
constexpr uint64_t kFillBatch = 1024;
constexpr uint64_t kLookupKeys = 64;  // of the lookups that are timed one by one
// One chain in so many is looked up again and again; the others grow old.
constexpr uint64_t kHotChains = 10;
// At six million keys a second a longer one would take more than the share of the stores' bytes.
constexpr absl::Duration kLease = absl::Milliseconds(250);
constexpr absl::Duration kPoll = absl::Milliseconds(10);
constexpr absl::Duration kPatience = absl::Seconds(120);
constexpr absl::Duration kControl = absl::Seconds(5);
constexpr absl::Duration kSettle = absl::Seconds(4);
constexpr char kNamespace[] = "poolbench-index";
constexpr char kFingerprint[] = "poolbench";

double Us(absl::Duration d) { return absl::ToDoubleMicroseconds(d); }

// A lookup's ids: `keys` neighbours of one store, from a chain that is a multiple of `every`.
class IdPicker {
 public:
  IdPicker(uint64_t stores, uint64_t chunks_per_store, uint64_t keys, uint64_t every, uint64_t seed)
      : stores_(stores), keys_(keys), step_(StorePlayer::kChain * every), random_(seed) {
    starts_ = chunks_per_store < keys ? 0 : (chunks_per_store - keys) / step_ + 1;
  }
  bool possible() const { return starts_ > 0; }
  const std::vector<KeyId>& Next() {
    const uint64_t store = random_.Below(stores_);
    const uint64_t first = random_.Below(starts_) * step_;
    ids_.clear();
    for (uint64_t i = 0; i < keys_; ++i) ids_.push_back(PlayedId(store, first + i));
    return ids_;
  }

 private:
  const uint64_t stores_;
  const uint64_t keys_;
  const uint64_t step_;
  uint64_t starts_ = 0;
  replay::Random random_;
  std::vector<KeyId> ids_;
};

class IndexRun {
 public:
  explicit IndexRun(const ScenarioEnv& env) : env_(env), options_(env.options) {}

  absl::StatusOr<std::vector<Figure>> Run() {
    CISTERN_RETURN_IF_ERROR(Start());
    CISTERN_RETURN_IF_ERROR(Fill());
    for (const uint64_t keys : {1, 128, 1024, 6000}) CISTERN_RETURN_IF_ERROR(Lookups(keys));
    CISTERN_RETURN_IF_ERROR(Evictions());
    CISTERN_RETURN_IF_ERROR(LockHolds());
    CISTERN_RETURN_IF_ERROR(Rebuild());
    return std::move(figures_);
  }

 private:
  uint64_t ChunksPerStore() const { return options_.index_chunks / options_.index_stores; }
  uint64_t Chunks() const { return ChunksPerStore() * options_.index_stores; }
  pid_t master_pid() const { return pool_->pids().front(); }
  void Add(const std::string& name, double value, const std::string& unit) {
    figures_.push_back({name, value, unit});
  }

  absl::Status Start();
  absl::Status Fill();
  absl::Status Lookups(uint64_t keys);
  absl::Status Evictions();
  absl::Status LockHolds();
  absl::Status Rebuild();

  // Over one connection to each master.
  absl::StatusOr<admin::StatsReply> Stats() {
    if (admin_ == nullptr) {
      CISTERN_ASSIGN_OR_RETURN(admin_,
                               ctl::AdminClient::Make(pool_->connection(), absl::Seconds(10)));
    }
    return admin_->Stats();
  }
  // Until the master counts so many chunks and every store serves.
  absl::Status AwaitChunks(uint64_t chunks);
  // Lookups one after the other, from hot chains, for `time` or until `over`.
  absl::StatusOr<replay::LatencyHistogram> TimeLookups(absl::Duration time,
                                                       const std::atomic<bool>* over);
  // Commits options_.evictions chunks at the pace; evictions follow.
  absl::Status CommitAtPace();

  const ScenarioEnv& env_;
  const Options& options_;
  std::unique_ptr<pool::LocalPool> pool_;
  std::unique_ptr<Client> client_;
  std::shared_ptr<Namespace> ns_;
  std::unique_ptr<PlayedStores> stores_;
  std::unique_ptr<ctl::AdminClient> admin_;
  uint64_t empty_bytes_ = 0;
  uint64_t control_ = 1;
  std::vector<Figure> figures_;
};

absl::Status IndexRun::Start() {
  pool::LocalPoolOptions pool_options;
  pool_options.stores = 0;
  pool_options.interrupted = env_.interrupted;
  pool_options.master_arguments = {"--enable-faults", "--fault", "master.core.measure_cpu:error:0"};
  CISTERN_ASSIGN_OR_RETURN(pool_, pool::LocalPool::Start(pool_options, env_.clock));
  CISTERN_ASSIGN_OR_RETURN(client_, ConnectTo(pool_.get(), options_));
  CISTERN_ASSIGN_OR_RETURN(ns_, client_->OpenNamespace(kNamespace, kFingerprint));
  PlayedStores::Options stores;
  stores.count = options_.index_stores;
  stores.chunk_bytes = kChunkBytes;
  stores.capacity_bytes =
      static_cast<uint64_t>(static_cast<double>(ChunksPerStore() * kChunkBytes) / kFillAtStart);
  stores.ns.set_id(std::string(ns_->id().view()));
  stores.ns.set_name(kNamespace);
  stores.ns.set_fingerprint(kFingerprint);
  CISTERN_ASSIGN_OR_RETURN(stores.token, ReadSecretFile(pool_->connection().token_file, 32));
  stores_ = std::make_unique<PlayedStores>(stores, env_.clock);
  CISTERN_RETURN_IF_ERROR(stores_->Connect(pool_->connection().master));
  CISTERN_RETURN_IF_ERROR(AwaitChunks(0));
  // One call of each kind, so that what is made at first use is not counted as a chunk's.
  CISTERN_RETURN_IF_ERROR(ns_->Lookup({PlayedId(0, 0)}).status());
  CISTERN_ASSIGN_OR_RETURN(empty_bytes_, ResidentBytes(master_pid()));
  return absl::OkStatus();
}

absl::Status IndexRun::AwaitChunks(uint64_t chunks) {
  const MonoTime end = env_.clock.Mono() + kPatience;
  while (true) {
    CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply stats, Stats());
    const auto serving = std::count_if(stats.stores().begin(), stats.stores().end(),
                                       [](const auto& s) { return s.state() == "serving"; });
    if (stats.pool().chunk_count() == chunks &&
        static_cast<uint64_t>(serving) == options_.index_stores) {
      return absl::OkStatus();
    }
    if (env_.interrupted()) return absl::CancelledError("interrupted");
    if (env_.clock.Mono() >= end) {
      return absl::DeadlineExceededError(absl::StrCat("the master knows ",
                                                      stats.pool().chunk_count(), " chunks, not ",
                                                      chunks, ", of ", serving, " stores"));
    }
    env_.clock.SleepFor(kPoll);
  }
}

absl::Status IndexRun::Fill() {
  CISTERN_ASSIGN_OR_RETURN(const double cpu_before, CpuSeconds(master_pid()));
  const MonoTime begin = env_.clock.Mono();
  // In whole rounds, so that each store gets its share to the chunk.
  for (uint64_t left = ChunksPerStore(); left > 0;) {
    const uint64_t n = std::min(left, kFillBatch);
    CISTERN_RETURN_IF_ERROR(stores_->Commit(n * options_.index_stores, n));
    left -= n;
    if (env_.interrupted()) return absl::CancelledError("interrupted");
  }
  CISTERN_RETURN_IF_ERROR(AwaitChunks(Chunks()));
  const auto chunks = static_cast<double>(Chunks());
  const double seconds = absl::ToDoubleSeconds(env_.clock.Mono() - begin);
  CISTERN_ASSIGN_OR_RETURN(const double cpu, CpuSeconds(master_pid()));
  // What the records were received in is given back within seconds.
  env_.clock.SleepFor(kSettle);
  CISTERN_ASSIGN_OR_RETURN(const uint64_t full_bytes, ResidentBytes(master_pid()));
  CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply stats, Stats());
  Add("stores", static_cast<double>(options_.index_stores), "count");
  Add("chunks", chunks, "count");
  Add("bytes a chunk, resident",
      (static_cast<double>(full_bytes) - static_cast<double>(empty_bytes_)) / chunks, "B");
  Add("bytes a chunk, as the master counts",
      static_cast<double>(stats.pool().index_bytes()) / chunks, "B");
  Add("records a second while filling", chunks / seconds / 1e6, "M/s");
  Add("master CPU a record", (cpu - cpu_before) * 1e6 / chunks, "us");
  return absl::OkStatus();
}

absl::Status IndexRun::Lookups(uint64_t keys) {
  IdPicker picker(options_.index_stores, ChunksPerStore(), keys, 1, keys);
  if (!picker.possible()) return absl::OkStatus();
  LookupOptions lookup;
  lookup.lease_time = kLease;
  std::unique_ptr<Measurement> echo;
  if (options_.baseline) {
    CISTERN_ASSIGN_OR_RETURN(
        echo, MakeTcpEcho(LookupBytes(keys), static_cast<double>(keys), 1, env_.clock));
  }
  Series ours{"ours"}, bare{"bare"};
  double cpu = 0;
  uint64_t calls = 0, leased = 0;
  const absl::Duration time = absl::Seconds(options_.seconds);
  // The first turn does not count.
  for (uint64_t round = 0; round <= options_.rounds; ++round) {
    CISTERN_ASSIGN_OR_RETURN(const double before, CpuSeconds(master_pid()));
    Work work;
    const MonoTime begin = env_.clock.Mono();
    for (const MonoTime end = begin + time * (round == 0 ? 0.2 : 1.0); env_.clock.Mono() < end;) {
      const std::vector<KeyId>& ids = picker.Next();
      const MonoTime start = env_.clock.Mono();
      CISTERN_ASSIGN_OR_RETURN(const LookupResult found, ns_->Lookup(ids, lookup));
      const absl::Duration took = env_.clock.Mono() - start;
      if (found.leading_run != keys) return absl::InternalError("a played chunk was not found");
      work.latency.Record(took);
      work.elapsed += took;  // without the making of ids
      work.units += static_cast<double>(keys);
      work.leased_calls += found.lease_shortened ? 0 : 1;
      ++work.calls;
    }
    if (env_.interrupted()) return absl::CancelledError("interrupted");
    if (round == 0) continue;
    CISTERN_ASSIGN_OR_RETURN(const double after, CpuSeconds(master_pid()));
    cpu += after - before;
    calls += work.calls;
    leased += work.leased_calls;
    Round done;
    done.rate = work.rate();
    done.latency = work.latency;
    ours.Add(done);
    if (echo == nullptr) continue;
    CISTERN_ASSIGN_OR_RETURN(const Round limit, echo->Run(time * 0.5));
    bare.Add(limit);
  }
  const std::string what = absl::StrCat("lookup of ", ctl::Plural(keys, "key"));
  Add(what, Median(ours.rates) / 1e6, "M keys/s");
  if (echo != nullptr) {
    Add(what + ": a bare TCP echo", Median(bare.rates) / 1e6, "M keys/s");
    Add(what + " / bare echo", Median(ours.rates) / Median(bare.rates), "");
  }
  Add(what + ": p50", Median(ours.p50_us), "us");
  Add(what + ": p99", Median(ours.p99_us), "us");
  Add(what + ": master CPU a call", cpu * 1e6 / static_cast<double>(calls), "us");
  Add(what + ": master CPU a key", cpu * 1e6 / static_cast<double>(calls * keys), "us");
  Add(what + ": leased in full", static_cast<double>(leased) / static_cast<double>(calls), "share");
  return absl::OkStatus();
}

absl::StatusOr<replay::LatencyHistogram> IndexRun::TimeLookups(absl::Duration time,
                                                               const std::atomic<bool>* over) {
  IdPicker picker(options_.index_stores, ChunksPerStore(), kLookupKeys, kHotChains, 99);
  if (!picker.possible()) return absl::InvalidArgumentError("--index-chunks: too few");
  LookupOptions lookup;
  lookup.lease_time = kLease;
  replay::LatencyHistogram latency;
  const MonoTime end = env_.clock.Mono() + time;
  while (over != nullptr ? !over->load() : env_.clock.Mono() < end) {
    const std::vector<KeyId>& ids = picker.Next();
    const MonoTime start = env_.clock.Mono();
    CISTERN_RETURN_IF_ERROR(ns_->Lookup(ids, lookup).status());
    latency.Record(env_.clock.Mono() - start);
  }
  return latency;
}

absl::Status IndexRun::CommitAtPace() {
  const MonoTime begin = env_.clock.Mono();
  for (uint64_t done = 0; done < options_.evictions;) {
    if (env_.interrupted()) return absl::CancelledError("interrupted");
    const double due = absl::ToDoubleSeconds(env_.clock.Mono() - begin) *
                       static_cast<double>(options_.evictions_per_second);
    if (static_cast<double>(done) > due) {
      env_.clock.SleepFor(absl::Milliseconds(1));
      continue;
    }
    // As a client's put of one chain to one store.
    const uint64_t n = std::min<uint64_t>(StorePlayer::kChain, options_.evictions - done);
    CISTERN_RETURN_IF_ERROR(stores_->Commit(n, n));
    done += n;
  }
  return absl::OkStatus();
}

absl::Status IndexRun::Evictions() {
  if (options_.evictions == 0) return absl::OkStatus();
  // As long as the other, so that both meet as much of what else this machine does.
  const absl::Duration time = absl::Seconds(static_cast<double>(options_.evictions) /
                                            static_cast<double>(options_.evictions_per_second));
  CISTERN_RETURN_IF_ERROR(TimeLookups(absl::Milliseconds(200), nullptr).status());
  CISTERN_ASSIGN_OR_RETURN(const auto quiet,
                           TimeLookups(std::min(time, absl::Seconds(10)), nullptr));
  const uint64_t evicted_before = stores_->evicted();
  CISTERN_ASSIGN_OR_RETURN(const double cpu_before, CpuSeconds(master_pid()));
  std::atomic<bool> over{false};
  absl::Status committed;
  const MonoTime begin = env_.clock.Mono();
  std::thread committing([&] {
    committed = CommitAtPace();
    over = true;
  });
  const auto busy = TimeLookups(absl::ZeroDuration(), &over);
  over = true;
  committing.join();
  CISTERN_RETURN_IF_ERROR(committed);
  CISTERN_RETURN_IF_ERROR(busy.status());
  const double seconds = absl::ToDoubleSeconds(env_.clock.Mono() - begin);
  const auto evicted = static_cast<double>(stores_->evicted() - evicted_before);
  CISTERN_ASSIGN_OR_RETURN(const double cpu, CpuSeconds(master_pid()));
  const auto percentiles = [this](const std::string& when, const replay::LatencyHistogram& h) {
    for (const auto& [name, share] :
         {std::pair("p50", 0.5), std::pair("p99", 0.99), std::pair("p99.9", 0.999)}) {
      Add(absl::StrCat("lookup of 64 keys, ", when, ": ", name), Us(h.Percentile(share)), "us");
    }
    Add(absl::StrCat("lookup of 64 keys, ", when, ": longest"), Us(h.max()), "us");
    Add(absl::StrCat("lookup of 64 keys, ", when, ": calls"), static_cast<double>(h.count()),
        "count");
  };
  percentiles("nothing evicted", quiet);
  percentiles("while evicting", *busy);
  Add("chunks evicted meanwhile", evicted, "count");
  Add("chunks evicted a second", evicted / seconds, "1/s");
  Add("lookup p99 while evicting / without",
      Us(busy->Percentile(0.99)) / std::max(1e-3, Us(quiet.Percentile(0.99))), "");
  Add("master CPU meanwhile, cores", (cpu - cpu_before) / seconds, "");
  return absl::OkStatus();
}

absl::Status IndexRun::LockHolds() {
  CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply stats, Stats());
  const admin::PoolStats& pool = stats.pool();
  uint64_t holds = 0, long_holds = 0;
  for (int i = 0; i < pool.lock_holds_by_log2_ns_size(); ++i) {
    holds += pool.lock_holds_by_log2_ns(i);
    if (i > 18) long_holds += pool.lock_holds_by_log2_ns(i);  // 2^18 ns = 262 us and more
  }
  Add("lock held, times", static_cast<double>(holds), "count");
  Add("lock held longest, on the wall clock",
      static_cast<double>(pool.longest_lock_hold_ns()) / 1e3, "us");
  Add("lock held longest, the holder's own time",
      static_cast<double>(pool.longest_lock_hold_cpu_ns()) / 1e3, "us");
  Add("lock held for more than 262 us on the wall clock", static_cast<double>(long_holds), "count");
  // What that clock shows of a thread that waits for nothing, not even for memory: the kernel's and
  // the host's work is on it too.
  const MonoTime end = env_.clock.Mono() + kControl;
  absl::Duration longest, sum;
  uint64_t pieces = 0;
  for (; env_.clock.Mono() < end; ++pieces) {
    const absl::Duration begin = ThreadCpuTime();
    for (int i = 0; i < 30'000; ++i) control_ = replay::Mix64(control_);
    const absl::Duration took = ThreadCpuTime() - begin;
    longest = std::max(longest, took);
    sum += took;
  }
  Add("of the same arithmetic again and again: mean", Us(sum) / static_cast<double>(pieces), "us");
  Add("of the same arithmetic again and again: longest", Us(longest), "us");
  return absl::OkStatus();
}

absl::Status IndexRun::Rebuild() {
  if (options_.rebuild_chunks == 0) return absl::OkStatus();
  stores_->Disconnect();
  stores_->Restart(options_.rebuild_chunks);
  const uint64_t held = stores_->held();
  const MonoTime begin = env_.clock.Mono();
  CISTERN_RETURN_IF_ERROR(pool_->RestartMaster());
  admin_ = nullptr;
  const MonoTime up = env_.clock.Mono();
  CISTERN_RETURN_IF_ERROR(stores_->Connect(pool_->connection().master));
  CISTERN_RETURN_IF_ERROR(AwaitChunks(held));
  const MonoTime known = env_.clock.Mono();
  Add("chunks told to a restarted master", static_cast<double>(held), "count");
  Add("seconds from its death until it serves", absl::ToDoubleSeconds(up - begin), "s");
  Add("seconds from then until it knows all", absl::ToDoubleSeconds(known - up), "s");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Figure>> RunIndex(const ScenarioEnv& env) { return IndexRun(env).Run(); }

}  // namespace cistern::poolbench
