#include "client/put_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/fault.h"
#include "proto/data.pb.h"

namespace cistern {

using transport::FrameType;

uint64_t PutBatch::StreamBytes() const {
  uint64_t sum = 0;
  for (const PutChunk& chunk : chunks) sum += PutPayload::StreamBytes(chunk, digest);
  return sum;
}

PutCall::PutCall(std::shared_ptr<Operation> operation, const StoreTable::Link& link, PutBatch batch,
                 Done done)
    : operation_(std::move(operation)),
      link_(link),
      batch_(std::move(batch)),
      done_(std::move(done)) {}

void PutCall::Start(std::shared_ptr<Operation> operation, const StoreTable::Link& link,
                    PutBatch batch, Done done) {
  (new PutCall(std::move(operation), link, std::move(batch), std::move(done)))->Send();
}

void PutCall::Send() {
  const size_t n = batch_.names.size();
  wire::PutRequest request;
  request.set_ns_ref(link_.ns_ref);
  ColumnWriter<KeyId> ids(request.mutable_ids(), n);
  ColumnWriter<uint32_t> lengths(request.mutable_lengths(), n);
  bool any_shard = false;
  for (size_t i = 0; i < n; ++i) {
    ids.Set(i, batch_.names[i].id);
    lengths.Set(i, static_cast<uint32_t>(batch_.chunks[i].layout.length));
    any_shard = any_shard || batch_.names[i].shard.value != 0;
  }
  if (any_shard) {
    ColumnWriter<uint16_t> shards(request.mutable_shards(), n);
    for (size_t i = 0; i < n; ++i) shards.Set(i, batch_.names[i].shard.value);
  }
  request.set_part_bytes(batch_.part_bytes);
  request.set_digest(batch_.digest ? wire::DIGEST_PRODUCER : wire::DIGEST_NONE);
  request.set_expiry_unix_ms(batch_.expiry_unix_ms);
  request.set_deadline_ms(operation_->RemainingMs());
  request.set_priority(operation_->priority() == Priority::kBackground ? 1 : 0);
  request.set_replace(batch_.replace);
  request.set_mutation(batch_.mutation);
  if (!batch_.keys.empty()) {
    ColumnWriter<uint16_t> key_lengths(request.mutable_key_lengths(), n);
    for (size_t i = 0; i < n; ++i) {
      key_lengths.Set(i, static_cast<uint16_t>(batch_.keys[i].size()));
      request.mutable_keys()->append(batch_.keys[i]);
    }
  }
  const uint64_t stream_bytes = batch_.StreamBytes();
  inline_ = !batch_.ask_first && stream_bytes <= transport::kInlinePayloadBytes;
  request.set_payload_inline(inline_);

  transport::CallSpec spec;
  spec.type = FrameType::kPut;
  spec.meta = request.SerializeAsString();
  if (inline_) spec.payload = std::make_unique<PutPayload>(batch_.chunks, batch_.digest);
  spec.expected_bytes = stream_bytes;
  spec.fail_fast = true;
  const std::shared_ptr<Operation> operation = operation_;
  operation->StartCall(*link_.channel, std::move(spec), this);
}

absl::Status PutCall::OnFrame(const Answer& answer, transport::PayloadSink**,
                              std::unique_ptr<transport::PayloadSource>* source) {
  if (answer.payload_bytes != 0) return absl::InternalError("the answer of a put has payload");
  if (answer.type == FrameType::kPutReady && !answer.final && !inline_ && !ready_) {
    return OnReady(answer.meta, source);
  }
  (void)CISTERN_FAULT("client.put.done");
  wire::PutDone done;
  if (answer.type != FrameType::kPutDone || !answer.final ||
      !done.ParseFromArray(answer.meta.data(), static_cast<int>(answer.meta.size())) ||
      done.statuses().size() != batch_.names.size()) {
    return absl::InternalError("the answer of a put is none that it can have");
  }
  answer_.statuses.assign(done.statuses().begin(), done.statuses().end());
  answer_.message = done.message();
  return absl::OkStatus();
}

absl::Status PutCall::OnReady(std::string_view meta,
                              std::unique_ptr<transport::PayloadSource>* source) {
  (void)CISTERN_FAULT("client.put.ready");
  wire::PutReady ready;
  if (!ready.ParseFromArray(meta.data(), static_cast<int>(meta.size())) ||
      ready.statuses().size() != batch_.names.size()) {
    return absl::InternalError("a put's Ready does not fit its request");
  }
  ready_ = true;
  std::vector<PutChunk> wanted;
  for (size_t i = 0; i < batch_.chunks.size(); ++i) {
    if (ready.statuses()[i] == wire::CHUNK_OK) wanted.push_back(batch_.chunks[i]);
  }
  auto payload = std::make_unique<PutPayload>(std::move(wanted), batch_.digest);
  if (payload->remaining() != ready.payload_bytes()) {
    return absl::InternalError(absl::StrCat("a put's Ready asks for ", ready.payload_bytes(),
                                            " bytes, its chunks have ", payload->remaining()));
  }
  if (payload->remaining() > 0) *source = std::move(payload);
  return absl::OkStatus();
}

void PutCall::OnDone(absl::Status status) {
  const std::unique_ptr<PutCall> self(this);
  if (status.ok() && answer_.statuses.size() != batch_.names.size()) {
    status = absl::InternalError("a put ended without its answer");
  }
  done_(status, answer_);
}

}  // namespace cistern
