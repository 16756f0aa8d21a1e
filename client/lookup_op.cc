#include "client/lookup_op.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/fault.h"
#include "base/status.h"

namespace cistern {

using transport::FrameType;

absl::Status CheckShards(uint16_t first, uint16_t count) {
  if (count == 0 || first + count > Shard::kMax + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("shards [", first, ", +", count, ") of 0 to ", Shard::kMax));
  }
  return absl::OkStatus();
}

size_t FirstFresh(const ClientCore& core, absl::Span<const KeyId> ids, const LookupOptions& options,
                  const std::vector<bool>& present, size_t first, size_t end) {
  const MonoTime now = core.clock.Mono();
  if (!core.fresh.Any(now)) return end;
  for (size_t k = first; k < end; ++k) {
    if (present[k]) continue;
    for (uint16_t s = 0; s < options.shard_count; ++s) {
      const Shard shard(static_cast<uint16_t>(options.shard_first + s));
      if (core.fresh.Find({ids[k], shard}, now).known()) return k;
    }
  }
  return end;
}

LookupOp::LookupOp(std::shared_ptr<ClientCore> core, std::shared_ptr<const NamespaceBinding> ns,
                   absl::Span<const KeyId> ids, const LookupOptions& options, bool async)
    : Operation(core->env, core->CallStart(options, async)),
      core_(std::move(core)),
      ns_(std::move(ns)),
      ids_(ids),
      options_(options) {}

absl::StatusOr<LookupResult> LookupOp::Take() {
  if (!status_.ok()) return status_;
  return std::move(result_);
}

void LookupOp::Begin() {
  result_.ns = ns_->id;
  result_.shard_first = options_.shard_first;
  result_.shard_count = options_.shard_count;
  result_.lease_time = absl::InfiniteDuration();
  absl::Status status = CheckShards(options_.shard_first, options_.shard_count);
  if (!status.ok()) return End(status);
  result_.ids.assign(ids_.begin(), ids_.end());
  result_.present.assign(ids_.size(), false);
  result_.stores.assign(ids_.size() * options_.shard_count, LookupResult::kNoStore);
  SendNext();
}

void LookupOp::SendNext() {
  if (next_ == ids_.size()) return End(absl::OkStatus());
  const size_t count = std::min(
      core_->master->KeysPerRequest(options_.shard_count, KeyId::kBytes, /*bytes_per_chunk=*/9),
      ids_.size() - next_);
  const size_t first = std::exchange(next_, next_ + count);
  const bool run_unbroken = result_.leading_run == first;
  wire::LookupRequest request;
  request.set_ns_ref(core_->master->Bind(*ns_));
  static_assert(sizeof(KeyId) == KeyId::kBytes);
  request.set_ids(reinterpret_cast<const char*>(ids_.data() + first), count * KeyId::kBytes);
  request.set_shard_first(options_.shard_first);
  request.set_shard_count(options_.shard_count);
  request.set_sparse(options_.sparse);
  request.set_lease_ms(static_cast<uint32_t>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(options_.lease_time), 0, UINT32_MAX)));
  request.set_no_lease(!options_.lease || (!run_unbroken && !options_.sparse));
  MasterCall<wire::LookupRequest, wire::LookupReply>::Start(
      shared_from_this(), core_->master.get(), FrameType::kLookup, FrameType::kLookupReply,
      std::move(request),
      [this, first, count](const absl::Status& status, wire::LookupReply& reply) {
        OnReply(first, count, status, reply);
      });
}

void LookupOp::OnReply(size_t first, size_t count, const absl::Status& status,
                       const wire::LookupReply& reply) {
  (void)CISTERN_FAULT("client.lookup.answered");
  if (!status.ok()) return End(status);
  if (absl::Status merged = Merge(first, count, reply); !merged.ok()) return End(merged);
  const size_t end = first + count;
  const size_t again = FirstFresh(*core_, ids_, options_, result_.present, first, end);
  if (again == end) return SendNext();
  After(FreshPuts::kAskAgain, [this, self = shared_from_this(), again, end] {
    // At the deadline the answer stands as it is.
    next_ = Interrupted().ok() ? again : end;
    SendNext();
  });
}

absl::Status LookupOp::Merge(size_t first, size_t count, const wire::LookupReply& reply) {
  const size_t shards = options_.shard_count;
  const size_t chunks = count * shards;
  CISTERN_RETURN_IF_ERROR(CheckBitmap(reply.present(), count, "present", /*allow_empty=*/true));
  const size_t columns = std::max<uint32_t>(reply.replica_columns(), 1);
  if (columns > 64 ||
      (!reply.stores().empty() && reply.stores().size() != columns * chunks * sizeof(uint16_t))) {
    return absl::InternalError("the master's store column does not fit the request");
  }
  absl::Duration lifetime = kPlacementLifetime;
  if (reply.lease_ms() > 0 && reply.lease_id().size() == LeaseId::kBytes) {
    result_.leases.push_back(LeaseId::FromBytes(reply.lease_id().data()));
    const absl::Duration lease = absl::Milliseconds(reply.lease_ms());
    result_.lease_time = std::min(result_.lease_time, lease);
    lifetime = std::max(lifetime, lease);
  }
  result_.lease_shortened = result_.lease_shortened || reply.lease_shortened();
  for (size_t k = 0; k < count; ++k) {
    const bool present = BitmapGet(reply.present(), k);
    result_.present[first + k] = present;
    if (present && result_.leading_run == first + k) ++result_.leading_run;
  }
  if (reply.stores().empty()) return absl::OkStatus();

  const StoreTable::Translation translation = core_->stores->translation();
  const auto store_at = [&](size_t column, size_t chunk) {
    uint16_t index;
    std::memcpy(&index, reply.stores().data() + 2 * (column * chunks + chunk), 2);
    return translation[index];
  };
  PlacementCache::Writer writer(&core_->placements, lifetime);
  for (size_t c = 0; c < chunks; ++c) {
    Placement placement;
    const size_t chunk = first * shards + c;
    result_.stores[chunk] = LookupResult::kNoStore;
    placement.stores[0] = store_at(0, c);
    if (!placement.stores[0].known()) continue;
    if (columns > 1) placement.stores[1] = store_at(1, c);
    result_.stores[chunk] = PositionOf(placement.stores[0]);
    const ChunkName name{ids_[first + c / shards],
                         Shard(static_cast<uint16_t>(options_.shard_first + c % shards))};
    writer.Add(name, placement);
  }
  return absl::OkStatus();
}

uint16_t LookupOp::PositionOf(LocalStore store) {
  if (positions_.size() <= store.value) {
    positions_.resize(store.value + 1, LookupResult::kNoStore);
  }
  uint16_t& position = positions_[store.value];
  if (position == LookupResult::kNoStore) {
    position = static_cast<uint16_t>(result_.store_ids.size());
    result_.store_ids.push_back(core_->stores->IdOf(store));
  }
  return position;
}

void LookupOp::End(const absl::Status& status) {
  status_ = status;
  if (result_.leases.empty()) result_.lease_time = absl::ZeroDuration();
  ClientCounters& counters = core_->counters;
  counters.lookups.fetch_add(1, std::memory_order_relaxed);
  counters.lookup_keys.fetch_add(next_, std::memory_order_relaxed);
  counters.lookup_hits.fetch_add(
      static_cast<uint64_t>(std::count(result_.present.begin(), result_.present.end(), true)),
      std::memory_order_relaxed);
  Finish();
}

}  // namespace cistern
