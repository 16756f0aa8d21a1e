#include "client/list_op.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/status.h"
#include "client/master_call.h"
#include "client/plain_status.h"
#include "proto/master.pb.h"

namespace cistern {

using transport::FrameType;

namespace {

// "ck1", the store's id, its incarnation, the position in it.
constexpr std::string_view kCursorMark = "ck1";
constexpr size_t kCursorBytes = kCursorMark.size() + StoreId::kBytes + 2 * sizeof(uint64_t);

}  // namespace

// One ListKeys request to one store. Owns itself; holds the operation until it is done.
class ListOp::PageCall final : public transport::CallHandler {
 public:
  explicit PageCall(std::shared_ptr<ListOp> op) : op_(std::move(op)) {}

  absl::Status OnFrame(const Answer& answer, transport::PayloadSink**,
                       std::unique_ptr<transport::PayloadSource>*) override {
    if (answer.type != FrameType::kListKeysReply || !answer.final || answer.payload_bytes != 0 ||
        !reply_.ParseFromArray(answer.meta.data(), static_cast<int>(answer.meta.size()))) {
      return absl::InternalError("the answer of a listing is none that it can have");
    }
    return absl::OkStatus();
  }
  void OnDone(absl::Status status) override {
    const std::unique_ptr<PageCall> self(this);
    op_->OnPage(PlainStatus(status), reply_);
  }

 private:
  const std::shared_ptr<ListOp> op_;
  wire::ListKeysReply reply_;
};

ListOp::ListOp(std::shared_ptr<ClientCore> core, std::shared_ptr<const OpenNamespaceInfo> ns,
               std::string_view pattern, const ListOptions& options)
    : Operation(core->env, core->CallStart(options, /*async=*/false)),
      core_(std::move(core)),
      ns_(std::move(ns)),
      pattern_(pattern),
      options_(options),
      hasher_(ns_->id) {}

absl::StatusOr<KeyPage> ListOp::Take() {
  if (!status_.ok()) return status_;
  return std::move(page_);
}

absl::StatusOr<ListOp::Cursor> ListOp::ParseCursor(std::string_view text) {
  if (text.size() != kCursorBytes || text.substr(0, kCursorMark.size()) != kCursorMark) {
    return absl::InvalidArgumentError("the cursor is none that a page gave");
  }
  Cursor cursor;
  const char* at = text.data() + kCursorMark.size();
  cursor.store = StoreId::FromBytes(at);
  std::memcpy(&cursor.incarnation, at + StoreId::kBytes, sizeof(uint64_t));
  std::memcpy(&cursor.position, at + StoreId::kBytes + sizeof(uint64_t), sizeof(uint64_t));
  return cursor;
}

std::string ListOp::CursorText() const {
  std::string text(kCursorMark);
  text.append(stores_[at_].id.view());
  text.append(reinterpret_cast<const char*>(&incarnation_), sizeof(incarnation_));
  text.append(reinterpret_cast<const char*>(&position_), sizeof(position_));
  return text;
}

void ListOp::Begin() {
  wire::GetMapsRequest request;
  MasterCall<wire::GetMapsRequest, wire::GetMapsReply>::Start(
      shared_from_this(), core_->master.get(), FrameType::kGetMaps, FrameType::kGetMapsReply,
      std::move(request), [this](const absl::Status& status, wire::GetMapsReply&) {
        if (!status.ok()) return End(status);
        OnDirectory();
      });
}

void ListOp::OnDirectory() {
  stores_ = core_->stores->Stores();
  if (!options_.cursor.empty()) {
    const absl::StatusOr<Cursor> cursor = ParseCursor(options_.cursor);
    if (!cursor.ok()) return End(cursor.status());
    const auto found = std::lower_bound(
        stores_.begin(), stores_.end(), cursor->store.view(),
        [](const StoreTable::Listed& s, std::string_view id) { return s.id.view() < id; });
    at_ = static_cast<size_t>(found - stores_.begin());
    if (found != stores_.end() && found->id == cursor->store) {
      incarnation_ = cursor->incarnation;
      position_ = cursor->position;
    }
  }
  Next();
}

void ListOp::Next() {
  for (; at_ < stores_.size(); ++at_, position_ = 0) {
    if (page_.keys.size() >= std::max<size_t>(options_.max_keys, 1)) break;
    if (absl::Status status = Interrupted(); !status.ok()) {
      // What was found so far is an answer, unless the caller wants none.
      if (!any_page_ || absl::IsCancelled(status)) return End(status);
      break;
    }
    const StoreTable::Listed& store = stores_[at_];
    absl::StatusOr<StoreTable::Link> link = absl::UnavailableError("the store is away");
    if (store.serving) link = core_->stores->Connect(store.store, *ns_);
    if (!link.ok()) {
      page_.unreachable.push_back(store.id);
      continue;
    }
    wire::ListKeysRequest request;
    request.set_ns_ref(link->ns_ref);
    request.set_pattern(pattern_);
    request.set_cursor(position_);
    request.set_incarnation(incarnation_);
    request.set_max_keys(static_cast<uint32_t>(
        std::clamp<size_t>(options_.max_keys - page_.keys.size(), 1, UINT32_MAX)));
    request.set_deadline_ms(RemainingMs());
    transport::CallSpec spec;
    spec.type = FrameType::kListKeys;
    spec.meta = request.SerializeAsString();
    spec.fail_fast = true;
    auto self = std::static_pointer_cast<ListOp>(shared_from_this());
    return StartCall(*link->channel, std::move(spec), new PageCall(std::move(self)));
  }
  if (at_ < stores_.size()) page_.next = CursorText();
  End(absl::OkStatus());
}

void ListOp::OnPage(const absl::Status& status, const wire::ListKeysReply& reply) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      if (absl::Status taken = TakeIn(reply); !taken.ok()) return End(taken);
      any_page_ = true;
      position_ = reply.next();
      incarnation_ = reply.incarnation();
      if (position_ == 0) ++at_;
      break;
    // The same with every store, or the caller's to deal with.
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
      return End(
          Annotate(status, absl::StrCat("store ", core_->stores->NameOf(stores_[at_].store))));
    case absl::StatusCode::kDeadlineExceeded:
      break;  // Next ends it
    default:
      page_.unreachable.push_back(stores_[at_].id);
      ++at_;
      position_ = 0;
  }
  Next();
}

absl::Status ListOp::TakeIn(const wire::ListKeysReply& reply) {
  const size_t n = reply.key_lengths().size() / sizeof(uint16_t);
  CISTERN_ASSIGN_OR_RETURN(
      const auto key_lengths,
      Column<uint16_t>::Parse(reply.key_lengths(), n, "key_lengths", true, false));
  CISTERN_ASSIGN_OR_RETURN(const auto shards,
                           Column<uint16_t>::Parse(reply.shards(), n, "shards", n == 0, false));
  CISTERN_ASSIGN_OR_RETURN(const auto lengths,
                           Column<uint32_t>::Parse(reply.lengths(), n, "lengths", n == 0, false));
  std::string_view rest = reply.keys();
  for (size_t i = 0; i < n; ++i) {
    const size_t length = key_lengths[i];
    if (length == 0 || length > kMaxKeyBytes || length > rest.size()) {
      return absl::InternalError("a store's listing does not fit its columns");
    }
    ListedKey& key = page_.keys.emplace_back();
    key.key = std::string(rest.substr(0, length));
    key.id = hasher_.Hash(key.key);
    key.shard = shards[i];
    key.length = lengths[i];
    rest.remove_prefix(length);
  }
  if (!rest.empty()) return absl::InternalError("a store's listing does not fit its columns");
  return absl::OkStatus();
}

void ListOp::End(const absl::Status& status) {
  status_ = status;
  Finish();
}

}  // namespace cistern
