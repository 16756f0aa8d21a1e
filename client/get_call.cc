#include "client/get_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/fault.h"
#include "base/status.h"
#include "client/chunk_code.h"

namespace cistern {

using transport::FrameType;

GetCall::GetCall(std::shared_ptr<Operation> operation, const StoreTable::Link& link, GetBatch batch,
                 std::unique_ptr<GetObserver> observer, Done done)
    : operation_(std::move(operation)),
      link_(link),
      batch_(std::move(batch)),
      observer_(std::move(observer)),
      done_(std::move(done)),
      outcomes_(batch_.targets.size()) {}

void GetCall::Start(std::shared_ptr<Operation> operation, const StoreTable::Link& link,
                    GetBatch batch, std::unique_ptr<GetObserver> observer, Done done) {
  (new GetCall(std::move(operation), link, std::move(batch), std::move(observer), std::move(done)))
      ->Send();
}

void GetCall::Send() {
  const size_t n = batch_.targets.size();
  wire::GetRequest request;
  request.set_ns_ref(link_.ns_ref);
  ColumnWriter<KeyId> ids(request.mutable_ids(), n);
  ColumnWriter<uint32_t> lengths(request.mutable_target_lengths(), n);
  bool any_shard = false;
  uint64_t bytes = 0;
  for (size_t i = 0; i < n; ++i) {
    const GetTarget& target = batch_.targets[i];
    ids.Set(i, target.name.id);
    lengths.Set(i, static_cast<uint32_t>(target.room()));
    any_shard = any_shard || target.name.shard.value != 0;
    bytes += target.room();
  }
  if (any_shard) {
    ColumnWriter<uint16_t> shards(request.mutable_shards(), n);
    for (size_t i = 0; i < n; ++i) shards.Set(i, batch_.targets[i].name.shard.value);
  }
  const GetSelection& selection = batch_.selection;
  if (selection.kind == GetSelection::Kind::kRange) {
    ColumnWriter<uint64_t> offsets(request.mutable_range_offsets(), n);
    ColumnWriter<uint32_t> sizes(request.mutable_range_lengths(), n);
    for (size_t i = 0; i < n; ++i) {
      offsets.Set(i, batch_.targets[i].range_offset);
      sizes.Set(i, static_cast<uint32_t>(batch_.targets[i].range_bytes));
    }
  }
  request.set_first_part(selection.first_part);
  request.set_part_count(selection.part_count);
  request.set_any_length(selection.any_length);
  if (batch_.order == GetOrder::kByPart) {
    request.set_order(wire::PART_MAJOR);
    request.set_notify_every(1);
  }
  request.set_deadline_ms(operation_->RemainingMs());
  request.set_priority(operation_->priority() == Priority::kBackground ? 1 : 0);

  transport::CallSpec spec;
  spec.type = FrameType::kGet;
  spec.meta = request.SerializeAsString();
  // A few kilobytes must not wait behind megabytes.
  constexpr uint64_t kSmallBytes = 64 << 10;
  spec.small = bytes <= kSmallBytes;
  spec.expected_bytes = bytes;
  spec.fail_fast = true;
  const std::shared_ptr<Operation> operation = operation_;
  operation->StartCall(*link_.channel, std::move(spec), this);
}

absl::Status GetCall::OnFrame(const Answer& answer, transport::PayloadSink** sink,
                              std::unique_ptr<transport::PayloadSource>*) {
  if (answer.type == FrameType::kGetHead && !headed_) {
    CISTERN_RETURN_IF_ERROR(OnHead(answer.meta));
    if (answer.final && answer.payload_bytes != payload_.stream_bytes()) {
      return absl::InternalError("a get's whole answer lacks payload");
    }
    if (batch_.order == GetOrder::kByPart) TellHead();
  } else if (answer.type == FrameType::kGetDone && headed_ && answer.final) {
    if (answer.payload_bytes != 0) return absl::InternalError("a get's last frame has payload");
    return OnStatuses(answer.meta);
  } else if (answer.type != FrameType::kData || !headed_ || answer.final) {
    return absl::InternalError("the answer of a get is none that it can have");
  }
  if (answer.payload_bytes > 0) *sink = &payload_;
  return absl::OkStatus();
}

absl::Status GetCall::OnHead(std::string_view meta) {
  (void)CISTERN_FAULT("client.get.head");
  GetHeadResult head;
  CISTERN_RETURN_IF_ERROR(ReadGetHead(meta, batch_, &head));
  headed_ = true;
  outcomes_ = std::move(head.outcomes);
  streamed_ = std::move(head.targets);
  payload_ = GetPayload(std::move(head.chunks), batch_.order, this);
  return absl::OkStatus();
}

void GetCall::TellHead() {
  if (observer_ == nullptr) return;
  std::vector<size_t> missing;
  for (size_t i = 0, s = 0; i < outcomes_.size(); ++i) {
    if (s == streamed_.size() || streamed_[s] != i) {
      missing.push_back(i);
      outcomes_[i].told = true;
      continue;
    }
    const uint32_t first = payload_.chunk(s++).touched_first();
    if (first > 0 && outcomes_[i].code == ChunkCode::kOk) observer_->OnParts(i, first);
  }
  if (!missing.empty()) observer_->OnMissing(missing, outcomes_);
}

absl::Status GetCall::OnStatuses(std::string_view meta) {
  wire::GetDone done;
  if (!done.ParseFromArray(meta.data(), static_cast<int>(meta.size())) ||
      (!done.statuses().empty() && done.statuses().size() != outcomes_.size())) {
    return absl::InternalError("a get's end does not fit its request");
  }
  if (done.statuses().empty()) return absl::OkStatus();
  // A chunk can turn from good to bad while it streams, never the other way: it did not come. Of
  // what is here and fits its digests nobody has to say that it is good.
  for (size_t s = 0; s < streamed_.size(); ++s) {
    GetOutcome& outcome = outcomes_[streamed_[s]];
    if (outcome.code != ChunkCode::kOk) continue;
    if (payload_.verdict(s) == GetPayload::Verdict::kVerified) continue;
    outcome.code = FromWire(static_cast<uint8_t>(done.statuses()[streamed_[s]]));
  }
  return absl::OkStatus();
}

void GetCall::OnParts(size_t chunk, uint32_t parts) {
  const size_t target = streamed_[chunk];
  GetOutcome& outcome = outcomes_[target];
  if (outcome.code != ChunkCode::kOk) return;  // not the chunk whose front is in place
  const GetChunk& c = payload_.chunk(chunk);
  const bool verified = c.check && c.table && c.begin % c.layout.part_bytes == 0 &&
                        (parts < c.touched_end() || !c.cuts_parts());
  // The cut last part of a range takes nothing away from the verified ones before it: behind them
  // another replica can go on, should the call not end well.
  if (verified || !outcome.front_verified) {
    outcome.front = {parts, c.layout.length, c.layout.part_bytes, c.root};
    outcome.front_verified = verified;
  }
  if (observer_ == nullptr) return;
  observer_->OnParts(target, parts == c.touched_end() ? PendingGet::kAllParts : parts);
}

void GetCall::OnBad(size_t chunk) {
  const size_t target = streamed_[chunk];
  GetOutcome& outcome = outcomes_[target];
  if (outcome.code != ChunkCode::kOk) return;
  outcome.code = ChunkCode::kDataLoss;
  outcome.mismatch = true;
  if (observer_ != nullptr) outcome.told = observer_->OnBad(target, outcome);
}

void GetCall::Settle(const absl::Status& status) {
  for (size_t s = 0; s < streamed_.size(); ++s) {
    GetOutcome& outcome = outcomes_[streamed_[s]];
    if (outcome.code != ChunkCode::kOk) continue;
    switch (payload_.verdict(s)) {
      case GetPayload::Verdict::kVerified:
        outcome.verified = true;
        break;
      case GetPayload::Verdict::kUnverified:
        // Only the end of the call says that the store stands by these.
        if (!status.ok()) outcome.code = FromStatus(status);
        break;
      case GetPayload::Verdict::kBad:
        outcome.code = ChunkCode::kDataLoss;
        outcome.mismatch = true;
        break;
      case GetPayload::Verdict::kPending:
        outcome.code = status.ok() ? ChunkCode::kInternal : FromStatus(status);
        break;
    }
  }
}

void GetCall::OnDone(absl::Status status) {
  (void)CISTERN_FAULT("client.get.done");
  const std::unique_ptr<GetCall> self(this);
  if (status.ok() && !headed_) status = absl::InternalError("a get ended without its answer");
  if (!headed_) {
    for (GetOutcome& outcome : outcomes_) outcome.code = FromStatus(status);
  }
  Settle(status);
  done_(status, outcomes_);
}

}  // namespace cistern
