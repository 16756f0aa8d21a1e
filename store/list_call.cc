#include "store/list_call.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/columns.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "proto/data.pb.h"
#include "store/connection_state.h"
#include "store/key_pattern.h"

namespace cistern::store {
namespace {

using transport::FrameType;
using transport::ServerCall;

// What a page holds at most: its time is the maintenance thread's, which others wait for too.
constexpr size_t kMaxPageKeys = 8'192;
constexpr size_t kMaxPageKeyBytes = 512 << 10;
constexpr absl::Duration kMaxPageTime = absl::Milliseconds(10);
// What matching the keys of one hold may take: a cursor cannot stand within them. Ordinary patterns
// take less than a millisecond.
constexpr absl::Duration kMaxStretchTime = absl::Milliseconds(100);

struct Walk {
  NamespaceIndex ns;
  KeyPattern pattern;
  uint64_t cursor = 0;
  size_t max_keys = 0;
  MonoTime deadline;
};

absl::StatusOr<Walk> Parse(const ServiceContext& context, ServerCall& call) {
  wire::ListKeysRequest request;
  if (!request.ParseFromArray(call.meta().data(), static_cast<int>(call.meta().size()))) {
    return absl::InvalidArgumentError("list: malformed request");
  }
  CISTERN_ASSIGN_OR_RETURN(
      const NamespaceIndex ns,
      ConnectionState::Of(call.connection(), *context.chunks).Find(request.ns_ref()));
  if (!context.chunks->NamespaceOptionsOf(ns).keep_keys()) {
    return absl::FailedPreconditionError(
        "list: this namespace does not keep keys; open one with the option keep_keys");
  }
  if (request.cursor() != 0 && request.incarnation() != context.incarnation) {
    return absl::AbortedError("list: the store has restarted since; list it from the start");
  }
  CISTERN_ASSIGN_OR_RETURN(KeyPattern pattern, KeyPattern::Compile(request.pattern()));
  const MonoTime deadline = DeadlineOf(call, request.deadline_ms());
  if (context.clock->Mono() >= deadline) {
    return absl::DeadlineExceededError("list: its time had passed when it was read");
  }
  call.SetDeadline(deadline);
  const size_t keys = request.max_keys() == 0 ? kMaxPageKeys : request.max_keys();
  return Walk{ns, std::move(pattern), request.cursor(), std::min(keys, kMaxPageKeys), deadline};
}

// The page, as far as its bounds let it get. The last stretch may lead beyond max_keys by what one
// hold of the mutex gives. ResourceExhausted: not even the first stretch could be matched in time.
absl::Status FillPage(const ServiceContext& context, const Walk& walk, wire::ListKeysReply* reply) {
  const MonoTime until = std::min(walk.deadline, context.clock->Mono() + kMaxPageTime);
  const KeyHasher hasher(context.chunks->NamespaceIdOf(walk.ns));
  std::optional<uint64_t> cursor = walk.cursor;
  std::vector<KeptKey> found;
  std::vector<KeptKey> page;
  size_t bytes = 0;
  bool first = true;
  do {
    found.clear();
    const uint64_t stretch = *cursor;
    const size_t page_before = page.size();
    const size_t bytes_before = bytes;
    cursor = context.chunks->ReadKeys(walk.ns, stretch, context.clock->Wall(), &found);
    const MonoTime give_up = context.clock->Mono() + kMaxStretchTime;
    bool late = false;
    for (KeptKey& kept : found) {
      late = context.clock->Mono() >= give_up;
      if (late) break;
      if (!walk.pattern.Matches(kept.key)) continue;
      // Bytes that rotted are no key of anybody's.
      if (hasher.Hash(kept.key) != kept.name.id) continue;
      bytes += kept.key.size();
      page.push_back(std::move(kept));
    }
    if (late) {
      if (first) {
        return absl::ResourceExhaustedError(
            "list: matching the pattern takes too long; use a simpler one, or try later");
      }
      // The next page begins with this stretch.
      page.resize(page_before);
      bytes = bytes_before;
      cursor = stretch;
      break;
    }
    first = false;
  } while (cursor.has_value() && page.size() < walk.max_keys && bytes < kMaxPageKeyBytes &&
           context.clock->Mono() < until);
  ColumnWriter<uint16_t> key_lengths(reply->mutable_key_lengths(), page.size());
  ColumnWriter<uint16_t> shards(reply->mutable_shards(), page.size());
  ColumnWriter<uint32_t> lengths(reply->mutable_lengths(), page.size());
  reply->mutable_keys()->reserve(bytes);
  for (size_t i = 0; i < page.size(); ++i) {
    key_lengths.Set(i, static_cast<uint16_t>(page[i].key.size()));
    shards.Set(i, page[i].name.shard.value);
    lengths.Set(i, static_cast<uint32_t>(page[i].length));
    reply->mutable_keys()->append(page[i].key);
  }
  reply->set_next(cursor.value_or(0));
  reply->set_incarnation(context.incarnation);
  return absl::OkStatus();
}

}  // namespace

void ServeListKeys(const ServiceContext& context, std::unique_ptr<ServerCall> call) {
  absl::StatusOr<Walk> parsed = Parse(context, *call);
  if (!parsed.ok()) return call->Fail(parsed.status());
  const std::shared_ptr<ServerCall> shared = std::move(call);
  auto walk = std::make_shared<Walk>(*std::move(parsed));
  const bool queued = context.run_in_background([&context, shared, walk] {
    if (shared->aborted()) return;
    wire::ListKeysReply reply;
    if (absl::Status s = FillPage(context, *walk, &reply); !s.ok()) return shared->Fail(s);
    shared->Reply(FrameType::kListKeysReply, reply.SerializeAsString(), /*final=*/true);
  });
  if (!queued) {
    shared->Fail(absl::ResourceExhaustedError("list: too much is waiting to be done; try later"));
  }
}

}  // namespace cistern::store
