#include "store/put_call.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/fault.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "proto/data.pb.h"
#include "store/put_stream.h"

namespace cistern::store {
namespace {

using transport::FrameType;
using transport::ServerCall;

// How long a put waits for room beyond which the answer is ResourceExhausted: the master answers a
// request for room within milliseconds; a pool that is all leased or pinned will not.
constexpr absl::Duration kRoomPatience = absl::Milliseconds(250);

class PutCall : public std::enable_shared_from_this<PutCall> {
 public:
  PutCall(const ServiceContext& context, std::unique_ptr<ServerCall> call)
      : context_(context), call_(std::move(call)) {}

  void Run() {
    (void)CISTERN_FAULT("store.put.asked");
    if (absl::Status s = Parse(); !s.ok()) {
      call_->Fail(s);
      return;
    }
    Reserve();
  }

 private:
  absl::Status Parse();
  absl::Status ParseKeys(const wire::PutRequest& request);
  void Reserve();
  void HoldReplaced(const std::vector<size_t>& open);
  void Receive();
  std::vector<PutStreamItem> StreamItems();
  void OnReceived(const absl::Status& status);
  void Done(std::string message);
  std::string StatusColumn() const;

  const ServiceContext& context_;
  const std::unique_ptr<ServerCall> call_;

  // From the request.
  NamespaceIndex ns_;
  PutOptions options_;
  bool digests_ = true;
  bool inline_ = false;
  MonoTime deadline_;
  std::vector<PutItem> items_;
  std::vector<PartLayout> layouts_;
  std::string keys_;         // what items_[i].key points into
  std::string key_message_;  // why a chunk was refused for its key
  // What a replace that found no room would replace: room is not to be had by evicting it.
  std::vector<ChunkRef> replaced_;

  std::vector<PutAnswer> answers_;
  std::vector<Version> versions_;
  std::optional<PutStream> stream_;
};

absl::Status PutCall::Parse() {
  wire::PutRequest request;
  if (!request.ParseFromArray(call_->meta().data(), static_cast<int>(call_->meta().size()))) {
    return absl::InvalidArgumentError("put: malformed request");
  }
  CISTERN_ASSIGN_OR_RETURN(
      ns_, ConnectionState::Of(call_->connection(), *context_.chunks).Find(request.ns_ref()));
  CISTERN_ASSIGN_OR_RETURN(const KeyColumn ids, KeyColumn::Parse(request.ids()));
  if (ids.size() == 0 || ids.size() > kMaxKeysPerRequest) {
    return absl::InvalidArgumentError(
        absl::StrCat("put: ", ids.size(), " chunks; 1 to ", kMaxKeysPerRequest, " fit a request"));
  }
  CISTERN_ASSIGN_OR_RETURN(const auto shards, Column<uint16_t>::Parse(request.shards(), ids.size(),
                                                                      "shards", true, false));
  CISTERN_ASSIGN_OR_RETURN(
      const auto lengths,
      Column<uint32_t>::Parse(request.lengths(), ids.size(), "lengths", false, true));
  deadline_ = DeadlineOf(*call_, request.deadline_ms());
  if (context_.clock->Mono() >= deadline_) {
    return absl::DeadlineExceededError("put: its time had passed when it was read");
  }
  call_->SetDeadline(deadline_);
  digests_ = request.digest() != wire::DIGEST_NONE;
  inline_ = request.payload_inline();
  options_.batch = context_.chunks->NewBatch();
  options_.part_bytes = request.part_bytes();
  options_.expiry_unix_ms = request.expiry_unix_ms();
  options_.replace = request.replace();
  options_.mutation = request.mutation();
  const wire::NamespaceOptions ns_options = context_.chunks->NamespaceOptionsOf(ns_);
  if (options_.replace && !ns_options.mutable_chunks()) {
    return absl::FailedPreconditionError(
        "replace: the chunks of this namespace are immutable; open one with the option mutable");
  }
  uint64_t part_bytes = request.part_bytes();
  if (part_bytes == 0) part_bytes = ns_options.part_bytes();

  uint64_t total = 0;
  items_.reserve(ids.size());
  layouts_.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (shards[i] > Shard::kMax) return absl::InvalidArgumentError("put: shard beyond 4095");
    CISTERN_ASSIGN_OR_RETURN(PartLayout layout, PartLayout::Make(lengths[i], part_bytes));
    items_.push_back({ChunkName{ids[i], Shard(shards[i])}, lengths[i], static_cast<uint32_t>(i)});
    total += layout.length + (digests_ ? layout.count * sizeof(PartDigest) : 0);
    layouts_.push_back(layout);
  }
  if (total > context_.max_batch_payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("put: ", total, " bytes in one request; ",
                                                   context_.max_batch_payload_bytes,
                                                   " are allowed"));
  }
  if (inline_ && call_->inline_payload_bytes() != total) {
    return absl::InvalidArgumentError(absl::StrCat("put: ", call_->inline_payload_bytes(),
                                                   " payload bytes where the chunks say ", total));
  }
  answers_.resize(items_.size());
  versions_.resize(items_.size());
  return ns_options.keep_keys() ? ParseKeys(request) : absl::OkStatus();
}

// The callers' keys, for namespaces that keep them. A key that is not the chunk's is refused alone.
absl::Status PutCall::ParseKeys(const wire::PutRequest& request) {
  CISTERN_ASSIGN_OR_RETURN(const auto lengths,
                           Column<uint16_t>::Parse(request.key_lengths(), items_.size(),
                                                   "key_lengths", /*allow_empty=*/false, false));
  keys_ = request.keys();
  const KeyHasher hasher(context_.chunks->NamespaceIdOf(ns_));
  uint64_t at = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const uint64_t length = lengths[i];
    if (length > keys_.size() - at) {
      return absl::InvalidArgumentError("put: key_lengths sum up to more than the keys have");
    }
    const std::string_view key = std::string_view(keys_).substr(at, length);
    at += length;
    if (key.empty() || key.size() > kMaxKeyBytes || hasher.Hash(key) != items_[i].name.id) {
      answers_[i].status = wire::CHUNK_INVALID_ARGUMENT;
      key_message_ = absl::StrCat("chunk ", i, ": this namespace keeps keys, and ",
                                  key.empty() ? "none was sent" : "the key is not that of its id");
      continue;
    }
    items_[i].key = key;
  }
  if (at != keys_.size()) {
    return absl::InvalidArgumentError("put: key_lengths sum up to less than the keys have");
  }
  return absl::OkStatus();
}

void PutCall::Reserve() {
  const absl::Time wall = context_.clock->Wall();
  // First everything, later only what found no room.
  std::vector<size_t> open;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (answers_[i].status == wire::CHUNK_INTERNAL ||
        answers_[i].status == wire::CHUNK_RESOURCE_EXHAUSTED) {
      open.push_back(i);
    }
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::vector<PutItem> items;
    for (size_t i : open) items.push_back(items_[i]);
    std::vector<PutAnswer> answers(items.size());
    const RoomNeeded needed =
        context_.chunks->BeginPut(ns_, items, options_, wall, absl::MakeSpan(answers));
    std::vector<size_t> still;
    for (size_t k = 0; k < open.size(); ++k) {
      if (answers[k].status == wire::CHUNK_RESOURCE_EXHAUSTED) still.push_back(open[k]);
      answers_[open[k]] = std::move(answers[k]);
    }
    open = std::move(still);
    if (!needed.any() || open.empty()) return Receive();
    if (options_.replace) HoldReplaced(open);
    const bool freed = context_.room->MakeRoom(needed);
    context_.poke_session();
    if (!freed) break;
  }
  const MonoTime patience = std::min(deadline_, call_->received_at() + kRoomPatience);
  if (context_.clock->Mono() < patience && !call_->aborted()) {
    const bool waits = context_.room->Wait(
        [self = shared_from_this()] { self->call_->Post([self] { self->Reserve(); }); });
    if (waits) return;
  }
  Receive();  // what found no room is answered so
}

void PutCall::HoldReplaced(const std::vector<size_t>& open) {
  if (!replaced_.empty()) return;
  std::vector<ChunkName> names;
  for (size_t i : open) names.push_back(items_[i].name);
  replaced_ = context_.chunks->Hold(ns_, names);
}

std::vector<PutStreamItem> PutCall::StreamItems() {
  std::vector<PutStreamItem> items;
  for (size_t i = 0; i < items_.size(); ++i) {
    PutSlot* slot = answers_[i].slot ? &answers_[i].slot : nullptr;
    if (slot == nullptr && !inline_) continue;  // not asked for
    items.push_back({layouts_[i], slot});
  }
  return items;
}

void PutCall::Receive() {
  if (CISTERN_FAULT("store.put.reserved")) {
    call_->Fail(absl::UnavailableError("fault point store.put.reserved"));
    return;
  }
  stream_.emplace(StreamItems(), digests_);
  if (!inline_) {
    wire::PutReady ready;
    ready.set_statuses(StatusColumn());
    ready.set_payload_bytes(stream_->total_bytes());
    if (stream_->total_bytes() == 0) return Done("");
    call_->Reply(FrameType::kPutReady, ready.SerializeAsString(), /*final=*/false);
  }
  call_->ReceivePayload(stream_->total_bytes(), &*stream_,
                        [self = shared_from_this()](absl::Status s) { self->OnReceived(s); });
}

void PutCall::OnReceived(const absl::Status& status) {
  if (!status.ok()) return;  // the peer is gone or has cancelled: the slots go with us
  replaced_.clear();
  (void)CISTERN_FAULT("store.put.received");
  std::string message;
  std::vector<PutSlot> slots(items_.size());
  size_t at = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!answers_[i].slot) {
      at += inline_ ? 1 : 0;
      continue;
    }
    const PutStreamItem& item = stream_->items()[at++];
    if (item.good) {
      slots[i] = std::move(answers_[i].slot);
    } else {
      answers_[i].slot.Abort();
      answers_[i].status = wire::CHUNK_DATA_LOSS;
      message = absl::StrCat("chunk ", i, ": the bytes do not match their digests");
    }
  }
  if (CISTERN_FAULT("store.put.before_commit")) {
    call_->Fail(absl::UnavailableError("fault point store.put.before_commit"));
    return;
  }
  CommitOptions commit;
  commit.digest_kind = digests_ ? wire::DIGEST_PRODUCER : wire::DIGEST_NONE;
  commit.checked = digests_;
  const absl::Status committed = context_.chunks->CommitBatch(
      absl::MakeSpan(slots), commit, context_.clock->Wall(), absl::MakeSpan(versions_));
  context_.poke_session();
  if (!committed.ok()) message = std::string(committed.message());
  for (size_t i = 0; i < items_.size(); ++i) {
    if (answers_[i].status != wire::CHUNK_OK || versions_[i].value != 0 ||
        answers_[i].duplicate_of != PutAnswer::kNoDuplicate) {
      continue;
    }
    if (!committed.ok()) {
      answers_[i].status = wire::CHUNK_UNAVAILABLE;
    } else {  // a replace was quicker
      const bool there = context_.chunks->Contains(ns_, items_[i].name, context_.clock->Wall());
      answers_[i].status = there ? wire::CHUNK_PRESENT : wire::CHUNK_UNAVAILABLE;
    }
  }
  if (CISTERN_FAULT("store.put.committed")) {
    call_->Fail(absl::UnavailableError("fault point store.put.committed"));
    return;
  }
  Done(std::move(message));
}

// For Ready: CHUNK_OK = send it. Of a chunk that is twice in the batch only the first is sent.
std::string PutCall::StatusColumn() const {
  std::string statuses(items_.size(), '\0');
  for (size_t i = 0; i < items_.size(); ++i) {
    const bool duplicate = answers_[i].duplicate_of != PutAnswer::kNoDuplicate;
    statuses[i] = static_cast<char>(duplicate ? wire::CHUNK_PRESENT : answers_[i].status);
  }
  return statuses;
}

void PutCall::Done(std::string message) {
  if (message.empty()) message = std::move(key_message_);
  context_.chunks->CountAnswers(answers_);
  wire::PutDone done;
  std::string statuses(items_.size(), '\0');
  ColumnWriter<uint64_t> versions(done.mutable_versions(), items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    // A duplicate fares as the one that was sent.
    const size_t from =
        answers_[i].duplicate_of != PutAnswer::kNoDuplicate ? answers_[i].duplicate_of : i;
    statuses[i] = static_cast<char>(answers_[from].status);
    versions.Set(i, versions_[from].value);
    if (message.empty() && answers_[from].status == wire::CHUNK_RESOURCE_EXHAUSTED) {
      message = "no room: what is held is leased, pinned, or was read in the last seconds";
    }
  }
  done.set_statuses(std::move(statuses));
  done.set_message(std::move(message));
  call_->Reply(FrameType::kPutDone, done.SerializeAsString(), /*final=*/true);
  (void)CISTERN_FAULT("store.put.answered");
}

}  // namespace

void ServePut(const ServiceContext& context, std::unique_ptr<ServerCall> call) {
  std::make_shared<PutCall>(context, std::move(call))->Run();
}

}  // namespace cistern::store
