#include "client/get_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/fault.h"
#include "base/status.h"
#include "client/chunk_code.h"

namespace cistern {

using transport::FrameType;

// Views of a head's columns.
struct GetCall::HeadColumns {
  Column<uint32_t> lengths;
  Column<uint32_t> part_bytes;
  Column<uint64_t> roots;
  Column<uint64_t> versions;
  Column<uint8_t> kinds;

  static absl::StatusOr<HeadColumns> Parse(const wire::GetHead& head, size_t n) {
    HeadColumns c;
    CISTERN_ASSIGN_OR_RETURN(c.lengths,
                             Column<uint32_t>::Parse(head.lengths(), n, "lengths", true, false));
    CISTERN_ASSIGN_OR_RETURN(
        c.part_bytes, Column<uint32_t>::Parse(head.part_bytes(), n, "part_bytes", true, false));
    CISTERN_ASSIGN_OR_RETURN(c.roots,
                             Column<uint64_t>::Parse(head.roots(), n, "roots", true, false));
    CISTERN_ASSIGN_OR_RETURN(c.versions,
                             Column<uint64_t>::Parse(head.versions(), n, "versions", true, false));
    CISTERN_ASSIGN_OR_RETURN(c.kinds, Column<uint8_t>::Parse(head.digest_kinds(), n, "digest_kinds",
                                                             true, false, wire::DIGEST_PRODUCER));
    return c;
  }
};

GetCall::GetCall(std::shared_ptr<Operation> operation, const StoreTable::Link& link, GetBatch batch,
                 Done done)
    : operation_(std::move(operation)),
      link_(link),
      batch_(std::move(batch)),
      done_(std::move(done)),
      outcomes_(batch_.targets.size()) {}

void GetCall::Start(std::shared_ptr<Operation> operation, const StoreTable::Link& link,
                    GetBatch batch, Done done) {
  (new GetCall(std::move(operation), link, std::move(batch), std::move(done)))->Send();
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
    lengths.Set(i, static_cast<uint32_t>(target.memory.bytes()));
    any_shard = any_shard || target.name.shard.value != 0;
    bytes += target.memory.bytes();
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
  headed_ = true;
  const size_t n = batch_.targets.size();
  wire::GetHead head;
  if (!head.ParseFromArray(meta.data(), static_cast<int>(meta.size())) ||
      head.statuses().size() != n) {
    return absl::InternalError("a get's head does not fit its request");
  }
  CISTERN_ASSIGN_OR_RETURN(const HeadColumns columns, HeadColumns::Parse(head, n));
  std::vector<GetChunk> chunks;
  chunks.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    outcomes_[i].code = FromWire(static_cast<uint8_t>(head.statuses()[i]));
    CISTERN_RETURN_IF_ERROR(Describe(i, columns, &chunks));
  }
  payload_ = GetPayload(std::move(chunks));
  if (payload_.stream_bytes() != head.payload_bytes()) {
    return absl::InternalError(absl::StrCat("a get's head announces ", head.payload_bytes(),
                                            " bytes, its chunks have ", payload_.stream_bytes()));
  }
  return absl::OkStatus();
}

absl::Status GetCall::Describe(size_t i, const HeadColumns& head, std::vector<GetChunk>* chunks) {
  GetOutcome& outcome = outcomes_[i];
  outcome.length = head.lengths[i];
  outcome.version = head.versions[i];
  if (outcome.code != ChunkCode::kOk) return absl::OkStatus();
  const GetTarget& target = batch_.targets[i];
  GetChunk chunk;
  chunk.memory = target.memory;
  chunk.name = target.name;
  chunk.root = head.roots[i];
  CISTERN_ASSIGN_OR_RETURN(chunk.layout, PartLayout::Make(head.lengths[i], head.part_bytes[i]));
  const bool digests = head.kinds[i] != wire::DIGEST_NONE;
  const GetSelection& selection = batch_.selection;
  switch (selection.kind) {
    case GetSelection::Kind::kWhole:
      CISTERN_RETURN_IF_ERROR(SelectWhole(digests, &chunk));
      break;
    case GetSelection::Kind::kParts:
      CISTERN_RETURN_IF_ERROR(
          SelectParts(selection.first_part, selection.part_count, digests, &chunk));
      break;
    case GetSelection::Kind::kRange:
      CISTERN_RETURN_IF_ERROR(
          SelectRange(target.range_offset, target.range_bytes, digests, &chunk));
      break;
  }
  const uint64_t bytes = chunk.end - chunk.begin;
  if (bytes > target.memory.bytes() || (bytes < target.memory.bytes() && !selection.any_length)) {
    return absl::InternalError("a get's head sends another length than was asked for");
  }
  chunks->push_back(chunk);
  streamed_.push_back(i);
  return absl::OkStatus();
}

absl::Status GetCall::OnStatuses(std::string_view meta) {
  wire::GetDone done;
  if (!done.ParseFromArray(meta.data(), static_cast<int>(meta.size())) ||
      (!done.statuses().empty() && done.statuses().size() != outcomes_.size())) {
    return absl::InternalError("a get's end does not fit its request");
  }
  for (size_t i = 0; i < done.statuses().size(); ++i) {
    // A chunk can turn from good to bad while it streams, never the other way: it did not come.
    const ChunkCode code = FromWire(static_cast<uint8_t>(done.statuses()[i]));
    if (outcomes_[i].code == ChunkCode::kOk) outcomes_[i].code = code;
  }
  return absl::OkStatus();
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
