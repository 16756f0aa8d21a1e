#include "tools/poolbench/cases.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "tools/poolbench/threads.h"
#include "tools/replay/random.h"

namespace cistern::poolbench {
namespace {

// How long a store may keep records before it reports them, and then some.
constexpr absl::Duration kRecordsSettle = absl::Milliseconds(20);

Round RoundOf(const Work& work) {
  Round round;
  round.rate = work.rate();
  round.calls = work.calls;
  round.keys = work.keys;
  round.latency = work.latency;
  round.leased_calls = work.leased_calls;
  return round;
}

double Read(const CpuMeter& meter) { return meter == nullptr ? 0 : meter(); }

// Calls [first, first + n) of the set, timed into `work`.
absl::Status TimedGet(WorkingSet& set, size_t first, size_t n, Clock& clock, Work* work) {
  thread_local std::vector<GetItem> items;
  items.clear();
  for (size_t i = first; i < first + n; ++i) {
    GetItem& item = items.emplace_back();
    item.id = set.ids()[i];
    item.memory = set.memory(i);
  }
  const MonoTime begin = clock.Mono();
  const BatchResult result = set.ns().BatchGet(items);
  work->latency.Record(clock.Mono() - begin);
  CISTERN_RETURN_IF_ERROR(Expect(result, ChunkCode::kOk, "get"));
  ++work->calls;
  work->keys += n;
  work->units += static_cast<double>(n * set.chunk_bytes());
  return absl::OkStatus();
}

absl::Status TimedPut(WorkingSet& set, size_t first, size_t n, Clock& clock, Work* work) {
  thread_local std::vector<PutItem> items;
  items.clear();
  for (size_t i = first; i < first + n; ++i) {
    PutItem& item = items.emplace_back();
    item.id = set.ids()[i];
    item.memory = set.memory(i);
  }
  const MonoTime begin = clock.Mono();
  const BatchResult result = set.ns().BatchPut(items);
  work->latency.Record(clock.Mono() - begin);
  CISTERN_RETURN_IF_ERROR(Expect(result, ChunkCode::kOk, "put"));
  ++work->calls;
  work->keys += n;
  work->units += static_cast<double>(n * set.chunk_bytes());
  return absl::OkStatus();
}

class CaseMeasurement : public Measurement {
 public:
  CaseMeasurement(const Case& one, WorkingSet set, const CaseOptions& options, Clock& clock)
      : case_(one), set_(std::move(set)), options_(options), clock_(clock) {}

 protected:
  const Case case_;
  WorkingSet set_;
  const CaseOptions options_;
  Clock& clock_;
};

class PutMeasurement final : public CaseMeasurement {
 public:
  using CaseMeasurement::CaseMeasurement;

  absl::StatusOr<Round> Run(absl::Duration time) override {
    Work sum;
    double cpu = 0;
    while (sum.elapsed < time) {
      const double before = Read(options_.master_cpu);
      absl::StatusOr<Work> pass =
          RunThreads(options_.threads, clock_, [this](uint64_t t) { return PutShare(t); });
      if (!pass.ok()) return pass.status();
      sum.Merge(*pass);
      // The records of what was put are part of its cost, asking whether they came is not.
      clock_.SleepFor(kRecordsSettle);
      cpu += Read(options_.master_cpu) - before;
      CISTERN_RETURN_IF_ERROR(set_.AwaitVisible(clock_));
      CISTERN_RETURN_IF_ERROR(set_.RemoveAll());
    }
    Round round = RoundOf(sum);
    round.master_cpu_seconds = cpu;
    return round;
  }

 private:
  absl::StatusOr<Work> PutShare(uint64_t thread) {
    Work work;
    const auto [begin, end] = set_.Share(thread, options_.threads);
    for (size_t first = begin; first < end; first += case_.batch) {
      const size_t n = std::min<size_t>(case_.batch, end - first);
      CISTERN_RETURN_IF_ERROR(TimedPut(set_, first, n, clock_, &work));
    }
    return work;
  }
};

class GetMeasurement final : public CaseMeasurement {
 public:
  using CaseMeasurement::CaseMeasurement;

  absl::StatusOr<Round> Run(absl::Duration time) override {
    const double before = Read(options_.master_cpu);
    absl::StatusOr<Work> work = RunThreads(
        options_.threads, clock_, [&](uint64_t t) { return GetUntil(t, clock_.Mono() + time); });
    if (!work.ok()) return work.status();
    Round round = RoundOf(*work);
    round.master_cpu_seconds = Read(options_.master_cpu) - before;
    return round;
  }

 private:
  absl::StatusOr<Work> GetUntil(uint64_t thread, MonoTime end_time) {
    const auto [begin, end] = set_.Share(thread, options_.threads);
    Work work;
    for (size_t first = begin; clock_.Mono() < end_time;) {
      const size_t n = std::min<size_t>(case_.batch, end - first);
      CISTERN_RETURN_IF_ERROR(TimedGet(set_, first, n, clock_, &work));
      first = first + n < end ? first + n : begin;
    }
    return work;
  }
};

class LookupMeasurement final : public CaseMeasurement {
 public:
  using CaseMeasurement::CaseMeasurement;

  absl::StatusOr<Round> Run(absl::Duration time) override {
    const double before = Read(options_.master_cpu);
    absl::StatusOr<Work> work = RunThreads(
        options_.threads, clock_, [&](uint64_t t) { return LookupUntil(t, clock_.Mono() + time); });
    if (!work.ok()) return work.status();
    Round round = RoundOf(*work);
    round.master_cpu_seconds = Read(options_.master_cpu) - before;
    return round;
  }

 private:
  absl::StatusOr<Work> LookupUntil(uint64_t thread, MonoTime end_time) {
    const auto [begin, end] = set_.Share(thread, options_.threads);
    LookupOptions lookup;
    lookup.lease = case_.lease;
    Work work;
    for (size_t first = begin; clock_.Mono() < end_time;) {
      if (first + case_.batch > end) first = begin;
      const size_t count = std::min<size_t>(case_.batch, end - first);
      const MonoTime start = clock_.Mono();
      absl::StatusOr<LookupResult> found =
          set_.ns().Lookup(set_.ids().subspan(first, count), lookup);
      work.latency.Record(clock_.Mono() - start);
      if (!found.ok()) return found.status();
      if (found->leading_run != count) {
        return absl::InternalError(
            absl::StrCat("only ", found->leading_run, " of ", count, " keys were found"));
      }
      ++work.calls;
      work.leased_calls += case_.lease && !found->lease_shortened ? 1 : 0;
      work.keys += count;
      work.units += static_cast<double>(count);
      first += count;
    }
    return work;
  }
};

// Chunks [0, size / 2) are got, the others put.
class MixedMeasurement final : public CaseMeasurement {
 public:
  using CaseMeasurement::CaseMeasurement;

  absl::StatusOr<Round> Run(absl::Duration time) override {
    CISTERN_RETURN_IF_ERROR(RemovePuts(set_.size() / 2, set_.size()));
    absl::StatusOr<Work> work = RunThreads(
        options_.threads, clock_, [&](uint64_t t) { return MixUntil(t, clock_.Mono() + time); });
    if (!work.ok()) return work.status();
    return RoundOf(*work);
  }

 private:
  absl::StatusOr<Work> MixUntil(uint64_t thread, MonoTime end_time) {
    const size_t half = set_.size() / 2;
    const auto share = [&](size_t base, size_t size) {
      return std::pair(base + size * thread / options_.threads,
                       base + size * (thread + 1) / options_.threads);
    };
    const auto [get_begin, get_end] = share(0, half);
    const auto [put_begin, put_end] = share(half, set_.size() - half);
    size_t get = get_begin;
    size_t put = put_begin;
    Work work;
    replay::Random random(thread + 1);
    while (clock_.Mono() < end_time) {
      if (random.Unit() < case_.gets) {
        const size_t n = std::min<size_t>(case_.batch, get_end - get);
        CISTERN_RETURN_IF_ERROR(TimedGet(set_, get, n, clock_, &work));
        get = get + n < get_end ? get + n : get_begin;
        continue;
      }
      const size_t n = std::min<size_t>(case_.batch, put_end - put);
      CISTERN_RETURN_IF_ERROR(TimedPut(set_, put, n, clock_, &work));
      put += n;
      if (put < put_end) continue;
      const MonoTime start = clock_.Mono();
      CISTERN_RETURN_IF_ERROR(RemovePuts(put_begin, put_end));
      work.elapsed += clock_.Mono() - start;
      put = put_begin;
    }
    return work;
  }

  // Once all that were put are there: a removal finds what the master knows.
  absl::Status RemovePuts(size_t begin, size_t end) {
    clock_.SleepFor(kRecordsSettle);
    RemoveOptions remove;
    remove.force = true;
    const BatchResult result = set_.ns().Remove(set_.ids().subspan(begin, end - begin), remove);
    CISTERN_RETURN_IF_ERROR(result.status);
    for (const ChunkResult& item : result.items) {
      if (item.code != ChunkCode::kOk && item.code != ChunkCode::kNotFound) {
        return absl::InternalError(absl::StrCat(
            "remove ended with ", AbslView(ChunkCodeName(item.code)), ": ", result.message));
      }
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeMeasurement(const Case& one, Client& client,
                                                             const CaseOptions& options,
                                                             Clock& clock) {
  CISTERN_ASSIGN_OR_RETURN(WorkingSet set,
                           WorkingSet::Make(client, {.bytes = options.working_set_bytes,
                                                     .chunk_bytes = one.chunk_bytes,
                                                     .spans = one.spans,
                                                     .origin = options.origin}));
  if (one.kind == Kind::kPut) {
    return std::make_unique<PutMeasurement>(one, std::move(set), options, clock);
  }
  if (one.kind == Kind::kMixed && set.size() < 2 * options.threads) {
    return absl::InvalidArgumentError("the working set has fewer than two chunks a thread");
  }
  const size_t present = one.kind == Kind::kMixed ? set.size() / 2 : set.size();
  const size_t batch = std::max<size_t>(1, (8 << 20) / one.chunk_bytes);
  CISTERN_RETURN_IF_ERROR(set.Put(0, present, batch));
  if (one.kind == Kind::kMixed) {
    return std::make_unique<MixedMeasurement>(one, std::move(set), options, clock);
  }
  CISTERN_RETURN_IF_ERROR(set.AwaitVisible(clock));
  if (one.kind == Kind::kGet) {
    return std::make_unique<GetMeasurement>(one, std::move(set), options, clock);
  }
  return std::make_unique<LookupMeasurement>(one, std::move(set), options, clock);
}

}  // namespace cistern::poolbench
