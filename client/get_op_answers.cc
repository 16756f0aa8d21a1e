// GetOp: requests to stores, and what becomes of their answers.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/string_view.h"
#include "client/chunk_code.h"
#include "client/get_op.h"

namespace cistern {

// Of one request by part. The call that owns it holds the operation.
class GetOp::Observer final : public GetObserver {
 public:
  Observer(GetOp* op, std::vector<uint32_t> items) : op_(*op), items_(std::move(items)) {}

  void OnMissing(absl::Span<const size_t> targets,
                 const std::vector<GetOutcome>& outcomes) override {
    op_.OnMissing(items_, targets, outcomes);
  }
  void OnParts(size_t target, uint32_t parts) override {
    if (op_.progress_.has_value()) op_.progress_->Advance(items_[target], parts);
  }
  bool OnBad(size_t target, const GetOutcome& outcome) override {
    return op_.OnBad(items_[target], outcome);
  }

 private:
  GetOp& op_;
  const std::vector<uint32_t> items_;
};

void GetOp::StartBatch(const WavePtr& wave, LocalStore store, const GetSelection& selection,
                       std::vector<uint32_t> items, uint64_t bytes) {
  const absl::Status interrupted = Interrupted();
  absl::StatusOr<StoreTable::Link> link = interrupted.ok()
                                              ? core_->stores->Connect(store, *ns_)
                                              : absl::StatusOr<StoreTable::Link>(interrupted);
  if (!link.ok()) {
    ReleaseBudget(bytes);
    const GetOutcome none{.code = FromStatus(link.status())};
    OnAnswered(wave, store, {}, items, link.status(), std::vector<GetOutcome>(items.size(), none));
    if (wave->step.End()) OnAllAnswered(wave);
    return;
  }
  GetBatch batch;
  batch.selection = selection;
  batch.order = options_.order;
  batch.targets.reserve(items.size());
  for (const uint32_t i : items) batch.targets.push_back(TargetOf(i));
  std::unique_ptr<GetObserver> observer;
  if (by_part()) observer = std::make_unique<Observer>(this, items);
  GetCall::Start(shared_from_this(), *link, std::move(batch), std::move(observer),
                 [this, wave, store, link = *link, bytes, items = std::move(items)](
                     const absl::Status& status, const std::vector<GetOutcome>& outcomes) {
                   ReleaseBudget(bytes);
                   OnAnswered(wave, store, link, items, status, outcomes);
                   if (wave->step.End()) OnAllAnswered(wave);
                 });
}

void GetOp::OnAnswered(const WavePtr& wave, LocalStore store, const StoreTable::Link& link,
                       const std::vector<uint32_t>& items, const absl::Status& status,
                       const std::vector<GetOutcome>& outcomes) {
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    core_->avoid.Add(store, clock().Mono());
  }
  bool any_mismatch = false;
  std::vector<uint32_t> again;
  for (size_t k = 0; k < items.size(); ++k) {
    any_mismatch = any_mismatch || outcomes[k].mismatch;
    if (outcomes[k].told) continue;
    if (OnOutcome(items[k], outcomes[k], StdView(status.message()))) again.push_back(items[k]);
  }
  if (any_mismatch && link.channel != nullptr) ReportBad(link, items, outcomes);
  if (again.empty()) return;
  MutexLock lock(wave->mutex);
  wave->again.insert(wave->again.end(), again.begin(), again.end());
}

bool GetOp::OnOutcome(uint32_t item, const GetOutcome& outcome, std::string_view why) {
  ChunkResult& result = result_.items[item];
  Route& route = routes_[item];
  result.code = outcome.code;
  result.verified = outcome.verified;
  if (outcome.length > 0 || route.front.parts == 0) result.length = outcome.length;
  if (outcome.code != ChunkCode::kOk && outcome.front.parts > 0) {
    // Nothing says that what another replica has belongs to what came here unchecked.
    if (!outcome.front_verified) {
      Note(why);
      Settle(item);
      return false;
    }
    // All that was asked for is here: then nothing but that is to be said of it.
    route.front = outcome.front;
  }
  switch (outcome.code) {
    case ChunkCode::kOk:
      Settle(item);
      return false;
    case ChunkCode::kNotFound:
      // A store drops what is reported bad: that is no reason to call it merely absent.
      if (route.mismatch) result.code = ChunkCode::kDataLoss;
      return TryElsewhere(item);
    case ChunkCode::kInvalidArgument:
      if (route.front.parts > 0) {  // it was right for the replica that the front is from
        result.code = ChunkCode::kDataLoss;
        return TryElsewhere(item);
      }
      Note(outcome.length > 0 ? absl::StrCat("item ", item, ": the chunk has ", outcome.length,
                                             " bytes, the target ", memory_[item].bytes())
                              : absl::StrCat("item ", item, ": refused: ", AbslView(why)));
      Settle(item);
      return false;
    case ChunkCode::kDataLoss:
      if (outcome.mismatch) {
        route.mismatch = true;
        core_->counters.verify_failures.fetch_add(1, std::memory_order_relaxed);
        Note(absl::StrCat("item ", item, ": bytes that do not fit their digests"));
      } else if (route.front.parts > 0) {
        Note(absl::StrCat("item ", item, ": its replicas are not the same"));
      }
      return TryElsewhere(item);
    case ChunkCode::kUnavailable:
    case ChunkCode::kAborted:
    case ChunkCode::kResourceExhausted:
    case ChunkCode::kInternal:
      Note(why);
      return TryElsewhere(item);
    default:
      Note(why);
      Settle(item);
      return false;
  }
}

bool GetOp::CanTryElsewhere(uint32_t item) const {
  const Route& route = routes_[item];
  return !route.looked_up || (route.replica == 0 && route.placement.stores[1].known()) ||
         (ns_->options.mutable_chunks && !route.moved);
}

bool GetOp::TryElsewhere(uint32_t item) {
  Route& route = routes_[item];
  core_->placements.Drop(NameOf(item));
  core_->fresh.Drop(NameOf(item));
  if (!CanTryElsewhere(item)) {
    Settle(item);
    return false;
  }
  if (route.replica == 0 && route.placement.stores[1].known()) {
    route.replica = 1;
  } else {
    // Of a mutable chunk also once more after a lookup: it was written anew elsewhere, perhaps.
    route.moved = route.looked_up;
    route.placement = Placement();
  }
  core_->counters.retries.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void GetOp::OnMissing(const std::vector<uint32_t>& items, absl::Span<const size_t> which,
                      const std::vector<GetOutcome>& outcomes) {
  std::vector<uint32_t> again;
  for (const size_t k : which) {
    if (OnOutcome(items[k], outcomes[k], "")) again.push_back(items[k]);
  }
  if (again.empty()) return;
  live_.Add();
  StartWave(std::move(again));
}

bool GetOp::OnBad(uint32_t item, const GetOutcome& outcome) {
  // Elsewhere it can be asked for only when this call is over: until then bytes land there.
  if (CanTryElsewhere(item)) return false;
  OnOutcome(item, outcome, "");
  return true;
}

void GetOp::OnAllAnswered(const WavePtr& wave) {
  std::vector<uint32_t> again;
  {
    MutexLock lock(wave->mutex);
    again = std::exchange(wave->again, {});
  }
  const absl::Status interrupted = Interrupted();
  if (absl::IsCancelled(interrupted)) {
    for (const uint32_t i : again) Fail(i, ChunkCode::kCancelled, "");
  }
  // Ends: each turn takes a replica, or the one lookup, away from every item left.
  if (again.empty() || !interrupted.ok()) {
    if (live_.End()) End();
    return;
  }
  std::sort(again.begin(), again.end());
  StartWave(std::move(again));
}

void GetOp::ReportBad(const StoreTable::Link& link, const std::vector<uint32_t>& items,
                      const std::vector<GetOutcome>& outcomes) {
  std::vector<size_t> bad;
  for (size_t k = 0; k < items.size(); ++k) {
    if (outcomes[k].mismatch) bad.push_back(k);
  }
  wire::ReportBad report;
  report.set_ns_ref(link.ns_ref);
  ColumnWriter<KeyId> ids(report.mutable_ids(), bad.size());
  ColumnWriter<uint16_t> shards(report.mutable_shards(), bad.size());
  ColumnWriter<uint64_t> versions(report.mutable_versions(), bad.size());
  for (size_t b = 0; b < bad.size(); ++b) {
    ids.Set(b, items_[items[bad[b]]].id);
    shards.Set(b, items_[items[bad[b]]].shard);
    versions.Set(b, outcomes[bad[b]].version);
  }
  report.set_deadline_ms(5000);
  core_->bad_reports.Send(link, report.SerializeAsString());
}

void GetOp::End() {
  ClientCounters& counters = core_->counters;
  uint64_t chunks = 0, bytes = 0, misses = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const ChunkResult& item = result_.items[i];
    chunks += item.code == ChunkCode::kOk ? 1 : 0;
    bytes += item.code == ChunkCode::kOk ? std::min(item.length, memory_[i].bytes()) : 0;
    misses += item.code == ChunkCode::kNotFound ? 1 : 0;
    if (!routes_[i].settled) Settle(static_cast<uint32_t>(i));  // out of time for another try
  }
  counters.get_chunks.fetch_add(chunks, std::memory_order_relaxed);
  counters.get_bytes.fetch_add(bytes, std::memory_order_relaxed);
  counters.get_misses.fetch_add(misses, std::memory_order_relaxed);
  if (budget_bytes_ > 0) ReleaseBudget(std::exchange(budget_bytes_, 0));
  pins_.Release();
  {
    MutexLock lock(mutex_);
    result_.message = std::move(message_);
    // As a whole it failed only if no chunk has an answer of its own.
    if (!failure_.ok() && chunks == 0 && misses == 0) result_.status = failure_;
  }
  Finish();
}

}  // namespace cistern
