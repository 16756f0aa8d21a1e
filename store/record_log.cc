#include "store/record_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/columns.h"
#include "base/status.h"
#include "proto/types.pb.h"

namespace cistern::store {
namespace {

constexpr size_t kFirstRingRecords = 1024;

template <typename T>
void SetElement(std::string* column, size_t i, T value) {
  std::memcpy(column->data() + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
bool SameAsFirst(const std::string& column, T value) {
  T first;
  std::memcpy(&first, column.data(), sizeof(T));
  return first == value;
}

}  // namespace

DeltaBuilder::DeltaBuilder(size_t count, wire::Delta* out) : count_(count), out_(out) {
  out->mutable_ids()->assign(count * KeyId::kBytes, '\0');
  out->mutable_shards()->assign(count * sizeof(uint16_t), '\0');
  out->mutable_versions()->assign(count * sizeof(uint64_t), '\0');
  out->mutable_tiers()->assign(count, '\0');
  out->mutable_lengths()->assign(count * sizeof(uint32_t), '\0');
  out->mutable_namespaces()->assign(count * sizeof(uint32_t), '\0');
  out->mutable_expiries()->assign(count * sizeof(uint32_t), '\0');
  out->mutable_causes()->assign(count, '\0');
  out->mutable_mutations()->assign(count * sizeof(uint64_t), '\0');
}

void DeltaBuilder::Set(size_t i, const Record& record) {
  std::memcpy(out_->mutable_ids()->data() + i * KeyId::kBytes, record.name.id.bytes.data(),
              KeyId::kBytes);
  SetElement(out_->mutable_shards(), i, record.name.shard.value);
  SetElement(out_->mutable_versions(), i, record.version.value);
  SetElement(out_->mutable_tiers(), i, record.tiers);
  SetElement(out_->mutable_lengths(), i, record.length);
  SetElement(out_->mutable_namespaces(), i, record.namespace_index);
  SetElement(out_->mutable_expiries(), i, record.expiry_unix_s);
  SetElement(out_->mutable_causes(), i, record.cause);
  SetElement(out_->mutable_mutations(), i, record.mutation);
  any_mutation_ |= record.mutation != 0;
  any_shard_ |= record.name.shard.value != 0;
  any_gone_or_other_tier_ |= record.tiers != wire::TIER_DRAM;
  any_expiry_ |= record.expiry_unix_s != 0;
  one_namespace_ &= SameAsFirst(out_->namespaces(), record.namespace_index);
  one_cause_ &= SameAsFirst(out_->causes(), record.cause);
}

void DeltaBuilder::Finish() {
  if (!any_shard_) out_->clear_shards();
  if (!any_gone_or_other_tier_) out_->clear_tiers();
  if (!any_expiry_) out_->clear_expiries();
  if (!any_mutation_) out_->clear_mutations();
  if (count_ > 0 && one_namespace_) out_->mutable_namespaces()->resize(sizeof(uint32_t));
  if (count_ > 0 && one_cause_) out_->mutable_causes()->resize(1);
}

RecordLog::RecordLog(size_t capacity) : capacity_(capacity) { CISTERN_CHECK(capacity > 0); }

const Record& RecordLog::AtLocked(uint64_t seq) const { return ring_[seq % ring_.size()]; }

void RecordLog::GrowLocked() {
  std::vector<Record> larger(std::min(capacity_, std::max(kFirstRingRecords, ring_.size() * 2)));
  for (uint64_t seq = first_; seq < next_; ++seq) larger[seq % larger.size()] = AtLocked(seq);
  ring_.swap(larger);
}

uint64_t RecordLog::Append(const Record& record) {
  MutexLock lock(mutex_);
  if (next_ - first_ == ring_.size()) {
    if (ring_.size() < capacity_) {
      GrowLocked();
    } else {
      ++first_;
      ++dropped_;
    }
  }
  const uint64_t seq = next_++;
  ring_[seq % ring_.size()] = record;
  appended_.NotifyAll();
  return seq;
}

RecordLog::Range RecordLog::range() const {
  MutexLock lock(mutex_);
  return {first_, next_};
}

absl::StatusOr<size_t> RecordLog::Take(uint64_t from_seq, size_t max, wire::Delta* out) const {
  MutexLock lock(mutex_);
  if (from_seq < first_ || from_seq > next_) {
    return absl::OutOfRangeError(absl::StrCat("record ", from_seq, " is not in the log [", first_,
                                              ", ", next_, "): send a snapshot"));
  }
  const size_t count = std::min<uint64_t>(max, next_ - from_seq);
  out->set_seq_first(from_seq);
  DeltaBuilder builder(count, out);
  for (size_t i = 0; i < count; ++i) builder.Set(i, AtLocked(from_seq + i));
  builder.Finish();
  return count;
}

void RecordLog::Ack(uint64_t seq) {
  MutexLock lock(mutex_);
  first_ = std::max(first_, std::min(seq, next_));
}

bool RecordLog::WaitFor(uint64_t seq, absl::Duration timeout) const {
  const MonoTime deadline = Clock::Real().Mono() + timeout;
  MutexLock lock(mutex_);
  while (next_ <= seq) {
    const absl::Duration left = deadline - Clock::Real().Mono();
    if (left <= absl::ZeroDuration()) return false;
    appended_.WaitFor(mutex_, left);
  }
  return true;
}

uint64_t RecordLog::dropped() const {
  MutexLock lock(mutex_);
  return dropped_;
}

}  // namespace cistern::store
