#include "tools/poolbench/cases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "tools/replay/chunk_pattern.h"

namespace cistern::poolbench {
namespace {

// The first chunk whose code is not as expected makes the measurement void.
absl::Status Expect(const BatchResult& result, ChunkCode expected, const char* what) {
  CISTERN_RETURN_IF_ERROR(result.status);
  for (const ChunkResult& item : result.items) {
    if (item.code != expected) {
      return absl::InternalError(absl::StrCat(
          what, " ended with ", AbslView(ChunkCodeName(item.code)), ": ", result.message));
    }
  }
  return absl::OkStatus();
}

absl::Status PutRange(WorkingSet& set, size_t begin, size_t end, size_t batch) {
  std::vector<PutItem> items;
  for (size_t first = begin; first < end; first += batch) {
    items.clear();
    for (size_t i = first; i < std::min(end, first + batch); ++i) {
      PutItem& item = items.emplace_back();
      item.id = set.ids[i];
      item.memory.spans = absl::MakeConstSpan(&set.spans[i], 1);
    }
    CISTERN_RETURN_IF_ERROR(Expect(set.ns->BatchPut(items), ChunkCode::kOk, "put"));
  }
  return absl::OkStatus();
}

absl::Status PutAll(WorkingSet& set, size_t batch) {
  return PutRange(set, 0, set.ids.size(), batch);
}

// A put is acknowledged a moment before the master knows of it.
absl::Status AwaitVisible(WorkingSet& set, Clock& clock) {
  const MonoTime end = clock.Mono() + absl::Seconds(10);
  while (clock.Mono() < end) {
    CISTERN_ASSIGN_OR_RETURN(const std::vector<bool> there, set.ns->Exists(set.ids));
    if (std::find(there.begin(), there.end(), false) == there.end()) return absl::OkStatus();
    clock.SleepFor(absl::Milliseconds(1));
  }
  return absl::DeadlineExceededError(
      "not every chunk that was put is there: is the pool large enough for the working set?");
}

class PutMeasurement final : public Measurement {
 public:
  PutMeasurement(WorkingSet set, size_t batch, uint64_t threads, Clock& clock)
      : set_(std::move(set)), batch_(batch), threads_(threads), clock_(clock) {}

  absl::StatusOr<double> Round(absl::Duration time) override {
    Work sum;
    while (sum.elapsed < time) {
      absl::StatusOr<Work> pass =
          RunThreads(threads_, clock_, [this](uint64_t t) -> absl::StatusOr<double> {
            const auto [begin, end] = set_.Share(t, threads_);
            CISTERN_RETURN_IF_ERROR(PutRange(set_, begin, end, batch_));
            return static_cast<double>((end - begin) * set_.chunk_bytes);
          });
      if (!pass.ok()) return pass.status();
      sum.units += pass->units;
      sum.elapsed += pass->elapsed;
      CISTERN_RETURN_IF_ERROR(AwaitVisible(set_, clock_));
      RemoveOptions remove;
      remove.force = true;
      remove.deadline = absl::Seconds(60);
      CISTERN_RETURN_IF_ERROR(set_.ns->RemoveAll(remove).status());
    }
    return sum.rate();
  }

 private:
  WorkingSet set_;
  const size_t batch_;
  const uint64_t threads_;
  Clock& clock_;
};

class GetMeasurement final : public Measurement {
 public:
  GetMeasurement(WorkingSet set, size_t batch, uint64_t threads, Clock& clock)
      : set_(std::move(set)), batch_(batch), threads_(threads), clock_(clock) {}

  absl::StatusOr<double> Round(absl::Duration time) override {
    absl::StatusOr<Work> work =
        RunThreads(threads_, clock_, [&](uint64_t t) { return GetUntil(t, clock_.Mono() + time); });
    if (!work.ok()) return work.status();
    return work->rate();
  }

 private:
  absl::StatusOr<double> GetUntil(uint64_t thread, MonoTime end_time) {
    const auto [begin, end] = set_.Share(thread, threads_);
    uint64_t chunks = 0;
    std::vector<GetItem> items;
    for (size_t first = begin; clock_.Mono() < end_time;) {
      items.clear();
      for (size_t i = first; i < std::min(end, first + batch_); ++i) {
        GetItem& item = items.emplace_back();
        item.id = set_.ids[i];
        item.memory.spans = absl::MakeConstSpan(&set_.spans[i], 1);
      }
      CISTERN_RETURN_IF_ERROR(Expect(set_.ns->BatchGet(items), ChunkCode::kOk, "get"));
      chunks += items.size();
      first = first + batch_ < end ? first + batch_ : begin;
    }
    return static_cast<double>(chunks * set_.chunk_bytes);
  }

  WorkingSet set_;
  const size_t batch_;
  const uint64_t threads_;
  Clock& clock_;
};

class LookupMeasurement final : public Measurement {
 public:
  LookupMeasurement(WorkingSet set, size_t batch, uint64_t threads, Clock& clock)
      : set_(std::move(set)), batch_(batch), threads_(threads), clock_(clock) {}

  absl::StatusOr<double> Round(absl::Duration time) override {
    absl::StatusOr<Work> work = RunThreads(
        threads_, clock_, [&](uint64_t t) { return LookupUntil(t, clock_.Mono() + time); });
    if (!work.ok()) return work.status();
    return work->rate();
  }

 private:
  absl::StatusOr<double> LookupUntil(uint64_t thread, MonoTime end_time) {
    const auto [begin, end] = set_.Share(thread, threads_);
    const absl::Span<const KeyId> ids = set_.ids;
    uint64_t keys = 0;
    for (size_t first = begin; clock_.Mono() < end_time;) {
      if (first + batch_ > end) first = begin;
      const size_t count = std::min(batch_, end - first);
      absl::StatusOr<LookupResult> found = set_.ns->Lookup(ids.subspan(first, count));
      if (!found.ok()) return found.status();
      if (found->leading_run != count) {
        return absl::InternalError(
            absl::StrCat("only ", found->leading_run, " of ", count, " keys were found"));
      }
      keys += count;
      first += count;
    }
    return static_cast<double>(keys);
  }

  WorkingSet set_;
  const size_t batch_;
  const uint64_t threads_;
  Clock& clock_;
};

}  // namespace

std::pair<size_t, size_t> WorkingSet::Share(uint64_t i, uint64_t threads) const {
  return {ids.size() * i / threads, ids.size() * (i + 1) / threads};
}

absl::StatusOr<WorkingSet> MakeWorkingSet(Client& client, const Case& one, uint64_t bytes) {
  WorkingSet set;
  set.chunk_bytes = one.chunk_bytes;
  const std::string name = absl::StrCat("poolbench-", RandomId<OperationId>().ToHex());
  CISTERN_ASSIGN_OR_RETURN(set.ns, client.OpenNamespace(name, "poolbench"));
  const size_t count = bytes / one.chunk_bytes;
  CISTERN_ASSIGN_OR_RETURN(set.memory, client.AllocateBuffer(count * one.chunk_bytes));
  auto* base = static_cast<uint8_t*>(set.memory.data());
  for (size_t i = 0; i < count; ++i) {
    CISTERN_ASSIGN_OR_RETURN(const KeyId id, set.ns->Hash(std::string(absl::StrCat("chunk-", i))));
    set.ids.push_back(id);
    set.spans.push_back({base + i * one.chunk_bytes, one.chunk_bytes});
    replay::ChunkPattern(1, i).Fill(set.spans[i].data, one.chunk_bytes);
  }
  return set;
}

absl::StatusOr<std::unique_ptr<Measurement>> MakeMeasurement(const Case& one, Client& client,
                                                             uint64_t working_set_bytes,
                                                             uint64_t threads, Clock& clock) {
  CISTERN_ASSIGN_OR_RETURN(WorkingSet set, MakeWorkingSet(client, one, working_set_bytes));
  const size_t batch = one.batch;
  if (one.kind == Kind::kPut) {
    return std::make_unique<PutMeasurement>(std::move(set), batch, threads, clock);
  }
  CISTERN_RETURN_IF_ERROR(PutAll(set, std::max<size_t>(1, (8 << 20) / one.chunk_bytes)));
  CISTERN_RETURN_IF_ERROR(AwaitVisible(set, clock));
  if (one.kind == Kind::kGet) {
    return std::make_unique<GetMeasurement>(std::move(set), batch, threads, clock);
  }
  return std::make_unique<LookupMeasurement>(std::move(set), batch, threads, clock);
}

}  // namespace cistern::poolbench
