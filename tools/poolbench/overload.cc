#include <algorithm>
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/string_view.h"
#include "tools/poolbench/rate_windows.h"
#include "tools/poolbench/scenarios.h"

namespace cistern::poolbench {
namespace {

constexpr absl::Duration kWindow = absl::Milliseconds(100);
// Batches that wait for the thread that looks up; a put goes on without it beyond.
constexpr size_t kMaxWaiting = 4096;
constexpr absl::Duration kVisiblePause = absl::Microseconds(500);
// Many times what a record needs to the master; what is not seen by then has been evicted.
constexpr absl::Duration kVisiblePatience = absl::Milliseconds(50);

// Looks batches up on a thread of its own, each as soon as all of it can be seen.
class Looker {
 public:
  Looker(Namespace& ns, Clock& clock) : ns_(ns), clock_(clock), thread_([this] { Run(); }) {}
  ~Looker() { Stop(); }

  // False: too many wait already.
  bool Add(std::vector<KeyId> ids) {
    MutexLock lock(mutex_);
    if (waiting_.size() >= kMaxWaiting) return false;
    waiting_.push_back(std::move(ids));
    changed_.NotifyAll();
    return true;
  }
  // After what waits.
  void Stop() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
  }
  // After Stop: chunks looked up, those that were leased, and what went wrong first.
  uint64_t looked_up() const { return looked_up_; }
  uint64_t leased() const { return leased_; }
  const absl::Status& status() const { return status_; }

 private:
  void Run() {
    while (true) {
      std::vector<KeyId> ids;
      absl::Duration patience = kVisiblePatience;
      {
        MutexLock lock(mutex_);
        while (waiting_.empty() && !stopping_) changed_.Wait(mutex_);
        if (waiting_.empty()) return;
        if (stopping_) patience = absl::ZeroDuration();  // one look at each that is left
        ids = std::move(waiting_.front());
        waiting_.pop_front();
      }
      Look(ids, patience);
    }
  }

  void Look(const std::vector<KeyId>& ids, absl::Duration patience) {
    const MonoTime end = clock_.Mono() + patience;
    while (true) {
      const absl::StatusOr<LookupResult> found = ns_.Lookup(ids);
      if (!found.ok()) {
        status_.Update(found.status());
        return;
      }
      if (found->leading_run == ids.size() || clock_.Mono() >= end) {
        looked_up_ += found->leading_run;
        if (!found->leases.empty() && !found->lease_shortened) leased_ += found->leading_run;
        return;
      }
      clock_.SleepFor(kVisiblePause);
    }
  }

  Namespace& ns_;
  Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::vector<KeyId>> waiting_ ABSL_GUARDED_BY(mutex_);
  // The thread's, until it is joined.
  uint64_t looked_up_ = 0;
  uint64_t leased_ = 0;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::vector<Figure>> RunOverload(const Case& one, const ScenarioEnv& env) {
  const Options& options = env.options;
  pool::LocalPoolOptions pool_options;
  pool_options.stores = static_cast<int>(options.stores);
  pool_options.pool_bytes = options.pool_bytes;
  pool_options.expected_chunk_bytes = one.chunk_bytes;
  pool_options.interrupted = env.interrupted;
  CISTERN_ASSIGN_OR_RETURN(const auto pool, pool::LocalPool::Start(pool_options, env.clock));
  CISTERN_ASSIGN_OR_RETURN(const auto client, ConnectTo(pool.get(), options));
  CISTERN_ASSIGN_OR_RETURN(const auto ns, client->OpenNamespace("overload", "poolbench"));
  CISTERN_ASSIGN_OR_RETURN(const Buffer buffer,
                           client->AllocateBuffer(one.chunk_bytes * one.batch));
  std::vector<Span> spans;
  for (uint64_t i = 0; i < one.batch; ++i) {
    spans.push_back({static_cast<uint8_t*>(buffer.data()) + i * one.chunk_bytes, one.chunk_bytes});
  }
  const auto total =
      static_cast<uint64_t>(static_cast<double>(options.pool_bytes) * options.overload_times);
  const uint64_t batch_bytes = one.chunk_bytes * one.batch;
  RateWindows windows(kWindow);
  Looker looker(*ns, env.clock);
  std::vector<PutItem> items(one.batch);
  uint64_t put = 0, refused = 0, calls = 0, not_looked_up = 0;
  std::string first_refusal;
  absl::Duration longest = absl::ZeroDuration();
  const MonoTime start = env.clock.Mono();
  for (; put + refused * one.chunk_bytes < total; ++calls) {
    if (env.interrupted()) return absl::CancelledError("interrupted");
    std::vector<KeyId> ids(one.batch);
    for (uint64_t i = 0; i < one.batch; ++i) {
      CISTERN_ASSIGN_OR_RETURN(
          ids[i], ns->Hash(std::string(absl::StrCat("chunk-", calls * one.batch + i))));
      items[i].id = ids[i];
      items[i].memory.spans = absl::MakeConstSpan(&spans[i], 1);
    }
    const MonoTime begin = env.clock.Mono();
    const BatchResult result = ns->BatchPut(items);
    const MonoTime end = env.clock.Mono();
    longest = std::max(longest, end - begin);
    const uint64_t good = result.CountOf(ChunkCode::kOk);
    windows.Add(begin - start, end - start, static_cast<double>(good * one.chunk_bytes));
    put += good * one.chunk_bytes;
    refused += one.batch - good;
    if (good < one.batch && first_refusal.empty()) {
      first_refusal =
          result.status.ok() ? result.message : std::string(StdView(result.status.message()));
    }
    if (good == one.batch && !looker.Add(std::move(ids))) ++not_looked_up;
  }
  const absl::Duration elapsed = env.clock.Mono() - start;
  looker.Stop();
  CISTERN_RETURN_IF_ERROR(looker.status());
  const std::vector<double> rates = windows.Rates(elapsed);
  const double median = Median(rates);
  const double slowest = rates.empty() ? 0 : *std::min_element(rates.begin(), rates.end());
  std::vector<Figure> figures = {
      {"taken of what was offered",
       static_cast<double>(put) / static_cast<double>(batch_bytes * calls), "share"},
      {"chunks refused", static_cast<double>(refused), "count"},
      {"put, whole run", static_cast<double>(put) / absl::ToDoubleSeconds(elapsed), "bytes/s"},
      {"put, median window", median, "bytes/s"},
      {"put, slowest window", slowest, "bytes/s"},
      {"slowest window / median", median == 0 ? 0 : slowest / median, ""},
      {"windows", static_cast<double>(rates.size()), "count"},
      {"longest put call", absl::ToDoubleMicroseconds(longest), "us"},
      {"chunks looked up", static_cast<double>(looker.looked_up()), "count"},
      {"of them leased", static_cast<double>(looker.leased()), "count"},
      {"batches not looked up", static_cast<double>(not_looked_up), "count"}};
  if (!first_refusal.empty()) figures.push_back({"first refusal: " + first_refusal, 1, "count"});
  return figures;
}

}  // namespace cistern::poolbench
