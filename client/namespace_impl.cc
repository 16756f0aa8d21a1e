#include "client/namespace_impl.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/status.h"
#include "base/string_view.h"
#include "client/chunk_code.h"
#include "client/get_op.h"
#include "client/list_op.h"
#include "client/lookup_op.h"
#include "client/pending_call.h"
#include "client/put_op.h"
#include "client/ticket.h"
#include "proto/data.pb.h"
#include "proto/master.pb.h"

namespace cistern {

using transport::FrameType;

namespace {

absl::Status CheckKey(std::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a key has 1 to ", kMaxKeyBytes, " bytes, not ", key.size()));
  }
  return absl::OkStatus();
}

BatchResult AllFailed(size_t n, const absl::Status& status) {
  BatchResult result;
  result.status = status;
  result.message = std::string(status.message());
  result.items.assign(n, ChunkResult{.code = FromStatus(status)});
  return result;
}

template <typename Op, typename... Args>
std::shared_ptr<Op> Launch(Args&&... args) {
  auto operation = std::make_shared<Op>(std::forward<Args>(args)...);
  operation->Launch();
  return operation;
}

template <typename Result, typename Op>
Pending<Result> MakePending(const std::shared_ptr<ClientCore>& core, std::shared_ptr<Op> op) {
  return Pending<Result>(std::make_shared<PendingCall<Result, Op>>(core, std::move(op)));
}
template <typename Result>
Pending<Result> MakePending(Result result) {
  return Pending<Result>(std::make_shared<PendingResult<Result>>(std::move(result)));
}

}  // namespace

wire::NamespaceOptions ToWire(const NamespaceOptions& options) {
  wire::NamespaceOptions out;
  out.set_verify(static_cast<wire::VerifyPolicy>(options.verify));
  if (options.ttl > absl::ZeroDuration() && options.ttl < absl::InfiniteDuration()) {
    out.set_ttl_ms(
        static_cast<uint64_t>(std::max<int64_t>(absl::ToInt64Milliseconds(options.ttl), 1)));
  }
  out.set_part_bytes(static_cast<uint32_t>(options.part_bytes));
  out.set_digest(options.digest ? wire::DIGEST_PRODUCER : wire::DIGEST_NONE);
  out.set_digest_set(true);
  out.set_mutable_chunks(options.mutable_chunks);
  out.set_keep_keys(options.keep_keys);
  return out;
}

NamespaceOptions FromWire(const wire::NamespaceOptions& options) {
  NamespaceOptions out;
  out.verify = options.verify() == wire::VERIFY_OFF       ? Verify::kOff
               : options.verify() == wire::VERIFY_SAMPLED ? Verify::kSampled
                                                          : Verify::kAlways;
  out.ttl = absl::Milliseconds(options.ttl_ms());
  out.part_bytes = options.part_bytes();
  out.digest = !options.digest_set() || options.digest() != wire::DIGEST_NONE;
  out.mutable_chunks = options.mutable_chunks();
  out.keep_keys = options.keep_keys();
  return out;
}

absl::StatusOr<std::shared_ptr<const OpenNamespaceInfo>> MakeOpenNamespace(
    std::string_view name, std::string_view fingerprint, const wire::NamespaceInfo& info) {
  auto ns = std::make_shared<OpenNamespaceInfo>();
  ns->id = DeriveNamespaceId(/*tenant=*/"", name, fingerprint);
  if (StdView(info.id()) != ns->id.view()) {
    return absl::InternalError("the master derives another id for the namespace than we do");
  }
  ns->name = std::string(name);
  ns->options = FromWire(info.options());
  wire::BindNamespace bind;
  bind.set_name(ns->name);
  bind.set_fingerprint(std::string(fingerprint));
  *bind.mutable_options() = info.options();
  bind.set_id(std::string(ns->id.view()));
  ns->store_meta = bind.SerializeAsString();
  wire::BindNamespaceRequest master;
  master.set_id(std::string(ns->id.view()));
  ns->master_meta = master.SerializeAsString();
  return std::shared_ptr<const OpenNamespaceInfo>(std::move(ns));
}

absl::StatusOr<KeyId> NamespaceImpl::Hash(std::string_view key) const {
  CISTERN_RETURN_IF_ERROR(CheckKey(key));
  return hasher_.Hash(key);
}

absl::Status NamespaceImpl::HashMany(absl::Span<const std::string_view> keys,
                                     std::vector<KeyId>* out) const {
  for (const std::string_view key : keys) CISTERN_RETURN_IF_ERROR(CheckKey(key));
  out->resize(keys.size());
  hasher_.HashMany(keys, out->data());
  return absl::OkStatus();
}

absl::StatusOr<LookupResult> NamespaceImpl::Lookup(absl::Span<const KeyId> ids,
                                                   const LookupOptions& options) {
  CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
  const auto operation = Launch<LookupOp>(core_, info_, ids, options, /*async=*/false);
  operation->Wait();
  return operation->Take();
}

absl::StatusOr<std::vector<bool>> NamespaceImpl::Exists(absl::Span<const KeyId> ids,
                                                        const LookupOptions& options) {
  CISTERN_RETURN_IF_ERROR(CheckShards(options.shard_first, options.shard_count));
  CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
  const OperationOptions start = core_->CallStart(options, /*async=*/false);
  std::vector<bool> present(ids.size());
  for (size_t first = 0; first < ids.size();) {
    const size_t count = std::min(
        core_->master->KeysPerRequest(options.shard_count, KeyId::kBytes, 1), ids.size() - first);
    wire::ExistsRequest request;
    request.set_ns_ref(core_->master->Bind(*info_));
    request.set_ids(reinterpret_cast<const char*>(ids.data() + first), count * KeyId::kBytes);
    request.set_shard_first(options.shard_first);
    request.set_shard_count(options.shard_count);
    CISTERN_ASSIGN_OR_RETURN(
        const wire::ExistsReply reply,
        (core_->CallMaster<wire::ExistsRequest, wire::ExistsReply>(
            FrameType::kExists, FrameType::kExistsReply, std::move(request), start)));
    CISTERN_RETURN_IF_ERROR(CheckBitmap(reply.present(), count, "present", true));
    for (size_t k = 0; k < count; ++k) present[first + k] = BitmapGet(reply.present(), k);
    const size_t again = FirstFresh(*core_, ids, options, present, first, first + count);
    if (again < first + count && core_->clock.Mono() + FreshPuts::kAskAgain < start.deadline) {
      core_->clock.SleepFor(FreshPuts::kAskAgain);
      first = again;
    } else {
      first += count;
    }
  }
  return present;
}

absl::StatusOr<LookupResult> NamespaceImpl::Adopt(std::string_view ticket) {
  CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
  CISTERN_ASSIGN_OR_RETURN(LookupResult result, ParseTicket(ticket));
  if (result.ns != info_->id) {
    return absl::InvalidArgumentError("the ticket is of another namespace");
  }
  std::vector<LocalStore> stores;
  for (const StoreId& id : result.store_ids) stores.push_back(core_->stores->Intern(id));
  const absl::Duration lifetime = std::max(kPlacementLifetime, result.lease_time);
  PlacementCache::Writer writer(&core_->placements, lifetime);
  for (size_t c = 0; c < result.stores.size() && !info_->options.mutable_chunks; ++c) {
    if (result.stores[c] == LookupResult::kNoStore) continue;
    const ChunkName name{result.ids[c / result.shard_count],
                         Shard(static_cast<uint16_t>(result.shard_first + c % result.shard_count))};
    Placement placement;
    placement.stores[0] = stores[result.stores[c]];
    writer.Add(name, placement);
  }
  return result;
}

absl::Status NamespaceImpl::Release(absl::Span<const LeaseId> leases, const CallOptions& options) {
  CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
  const OperationOptions start = core_->CallStart(options, /*async=*/false);
  for (const LeaseId& lease : leases) {
    wire::ReleaseRequest request;
    request.set_lease_id(std::string(lease.view()));
    CISTERN_RETURN_IF_ERROR(
        (core_->CallMaster<wire::ReleaseRequest, wire::ReleaseReply>(
             FrameType::kRelease, FrameType::kReleaseReply, std::move(request), start))
            .status());
  }
  return absl::OkStatus();
}

BatchResult NamespaceImpl::BatchPut(absl::Span<const PutItem> items, const PutOptions& options) {
  const absl::StatusOr<CallGuard> guard = core_->Enter();
  if (!guard.ok()) return AllFailed(items.size(), guard.status());
  core_->stores->ReapRetired();
  const auto operation = Launch<PutOp>(core_, info_, items, options, /*async=*/false);
  operation->Wait();
  return operation->Take();
}

BatchResult NamespaceImpl::BatchGet(absl::Span<const GetItem> items, const GetOptions& options) {
  const absl::StatusOr<CallGuard> guard = core_->Enter();
  if (!guard.ok()) return AllFailed(items.size(), guard.status());
  core_->stores->ReapRetired();
  const auto operation = Launch<GetOp>(core_, info_, items, options, /*async=*/false);
  operation->Wait();
  return operation->Take();
}

absl::Status NamespaceImpl::Prefetch(absl::Span<const KeyId> ids, const LookupOptions& options) {
  LookupOptions lookup = options;
  lookup.lease = false;
  return Lookup(ids, lookup).status();
}

BatchResult NamespaceImpl::Remove(absl::Span<const KeyId> ids, const RemoveOptions& options) {
  const size_t shards = options.shard_count;
  absl::Status status = CheckShards(options.shard_first, options.shard_count);
  const absl::StatusOr<CallGuard> guard = core_->Enter();
  status.Update(guard.status());
  const OperationOptions start = core_->CallStart(options, /*async=*/false);
  BatchResult result = AllFailed(ids.size() * shards, status);
  for (size_t first = 0; status.ok() && first < ids.size();) {
    const size_t count =
        std::min(core_->master->KeysPerRequest(shards, KeyId::kBytes, 1), ids.size() - first);
    wire::RemoveRequest request;
    request.set_ns_ref(core_->master->Bind(*info_));
    request.set_ids(reinterpret_cast<const char*>(ids.data() + first), count * KeyId::kBytes);
    request.set_shard_first(options.shard_first);
    request.set_shard_count(options.shard_count);
    request.set_force(options.force);
    auto reply = core_->CallMaster<wire::RemoveRequest, wire::RemoveReply>(
        FrameType::kRemove, FrameType::kRemoveReply, std::move(request), start);
    status = reply.status();
    if (status.ok() && reply->statuses().size() != count * shards) {
      status = absl::InternalError("the master's statuses do not fit the request");
    }
    for (size_t c = 0; c < count * shards; ++c) {
      const size_t chunk = first * shards + c;
      result.items[chunk].code =
          status.ok() ? FromWire(static_cast<uint8_t>(reply->statuses()[c])) : FromStatus(status);
      const ChunkName name{ids[chunk / shards],
                           Shard(static_cast<uint16_t>(options.shard_first + chunk % shards))};
      core_->placements.Drop(name);
      core_->fresh.Drop(name);
    }
    first += count;
    if (!status.ok()) {
      for (size_t c = first * shards; c < result.items.size(); ++c) {
        result.items[c].code = FromStatus(status);
      }
      result.status = status;
      result.message = std::string(status.message());
    }
  }
  return result;
}

absl::StatusOr<uint64_t> NamespaceImpl::RemoveAll(const RemoveOptions& options) {
  CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
  wire::RemoveRequest request;
  request.set_ns_ref(core_->master->Bind(*info_));
  request.set_all(true);
  request.set_force(options.force);
  CISTERN_ASSIGN_OR_RETURN(const wire::RemoveReply reply,
                           (core_->CallMaster<wire::RemoveRequest, wire::RemoveReply>(
                               FrameType::kRemove, FrameType::kRemoveReply, std::move(request),
                               core_->CallStart(options, /*async=*/false))));
  core_->fresh.Clear();
  if (reply.unreachable_count() > 0) {
    return absl::UnavailableError(absl::StrCat(
        reply.unreachable_count(), " chunks are in stores that are away, and still there (",
        reply.removed_count(), " were removed): repeat the call when they are back"));
  }
  return reply.removed_count();
}

absl::StatusOr<KeyPage> NamespaceImpl::ListKeys(std::string_view pattern,
                                                const ListOptions& options) {
  CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
  if (!info_->options.keep_keys) {
    return absl::FailedPreconditionError(absl::StrCat(
        "namespace \"", info_->name, "\" does not keep keys: open one with the option keep_keys"));
  }
  const auto operation = Launch<ListOp>(core_, info_, pattern, options);
  operation->Wait();
  return operation->Take();
}

absl::StatusOr<MatchRemoval> NamespaceImpl::RemoveMatching(std::string_view pattern,
                                                           const RemoveOptions& options) {
  MatchRemoval sum;
  ListOptions list;
  list.priority = options.priority;
  RemoveOptions remove = options;
  const MonoTime deadline = core_->CallStart(options, /*async=*/false).deadline;
  do {
    // Each page has what is left of the time.
    list.deadline = remove.deadline = deadline - core_->clock.Mono();
    if (list.deadline <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("removed ", sum.removed, " of the chunks that match; there may be more"));
    }
    CISTERN_ASSIGN_OR_RETURN(const KeyPage page, ListKeys(pattern, list));
    list.cursor = page.next;
    for (const StoreId& store : page.unreachable) {
      if (std::find(sum.unreachable.begin(), sum.unreachable.end(), store) ==
          sum.unreachable.end()) {
        sum.unreachable.push_back(store);
      }
    }
    absl::flat_hash_map<uint16_t, std::vector<KeyId>> by_shard;
    for (const ListedKey& key : page.keys) by_shard[key.shard].push_back(key.id);
    for (const auto& [shard, ids] : by_shard) {
      remove.shard_first = shard;
      remove.shard_count = 1;
      const BatchResult result = Remove(ids, remove);
      CISTERN_RETURN_IF_ERROR(result.status);
      sum.matched += ids.size();
      sum.removed += result.CountOf(ChunkCode::kOk) + result.CountOf(ChunkCode::kNotFound);
      sum.refused += result.CountOf(ChunkCode::kFailedPrecondition);
    }
  } while (!list.cursor.empty());
  sum.failed = sum.matched - sum.removed - sum.refused;
  return sum;
}

Pending<absl::StatusOr<LookupResult>> NamespaceImpl::LookupAsync(absl::Span<const KeyId> ids,
                                                                 const LookupOptions& options) {
  using Result = absl::StatusOr<LookupResult>;
  const absl::StatusOr<CallGuard> guard = core_->Enter();
  if (!guard.ok()) return MakePending<Result>(Result(guard.status()));
  return MakePending<Result>(core_, Launch<LookupOp>(core_, info_, ids, options, true));
}

Pending<BatchResult> NamespaceImpl::BatchPutAsync(absl::Span<const PutItem> items,
                                                  const PutOptions& options) {
  const absl::StatusOr<CallGuard> guard = core_->Enter();
  if (!guard.ok()) return MakePending<BatchResult>(AllFailed(items.size(), guard.status()));
  return MakePending<BatchResult>(core_, Launch<PutOp>(core_, info_, items, options, true));
}

PendingGet NamespaceImpl::BatchGetAsync(absl::Span<const GetItem> items,
                                        const GetOptions& options) {
  const absl::StatusOr<CallGuard> guard = core_->Enter();
  if (!guard.ok()) {
    return PendingGet(std::make_shared<PendingGetResult>(AllFailed(items.size(), guard.status())));
  }
  return PendingGet(std::make_shared<PendingGetCall<GetOp>>(
      core_, Launch<GetOp>(core_, info_, items, options, true)));
}

}  // namespace cistern
