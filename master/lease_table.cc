#include "master/lease_table.h"

#include <algorithm>

namespace cistern::master {

uint32_t LeaseTable::TickOf(MonoTime t) {
  return static_cast<uint32_t>(absl::ToInt64Milliseconds(t.since_origin) / 100);
}

uint32_t LeaseTable::TickAtOrAfter(MonoTime t) {
  return static_cast<uint32_t>((absl::ToInt64Milliseconds(t.since_origin) + 99) / 100);
}

LeaseTable::LeaseTable(Options options)
    : options_(std::move(options)), wheel_(kWheelSlots, Handle::kNone) {}

LeaseTable::Handle LeaseTable::Begin(MonoTime until, MonoTime now) {
  if (live_ >= options_.max_leases) return Handle();
  const uint32_t now_tick = TickOf(now);
  const uint32_t tick = TickAtOrAfter(std::min(until, now + kMaxLease));
  if (tick <= now_tick) return Handle();
  if (live_ == 0) wheel_tick_ = now_tick;  // every slot is empty
  uint32_t slot;
  if (free_.empty()) {
    slot = static_cast<uint32_t>(leases_.size());
    leases_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  Lease& lease = leases_[slot];
  options_.random_bytes(lease.id.bytes.data(), LeaseId::kBytes);
  ++lease.serial;
  lease.live = true;
  lease.until_tick = tick;
  uint32_t& head = wheel_[tick % kWheelSlots];
  lease.prev = Handle::kNone;
  lease.next = head;
  if (head != Handle::kNone) leases_[head].prev = slot;
  head = slot;
  PartOf(lease.id)[lease.id] = slot;
  ++live_;
  return Handle{slot, lease.serial};
}

const LeaseTable::Lease* LeaseTable::Live(Handle handle) const {
  if (handle.slot >= leases_.size()) return nullptr;
  const Lease& lease = leases_[handle.slot];
  return lease.live && lease.serial == handle.serial ? &lease : nullptr;
}

LeaseTable::Lease* LeaseTable::Live(Handle handle) {
  return const_cast<Lease*>(static_cast<const LeaseTable*>(this)->Live(handle));
}

LeaseTable::Grant LeaseTable::Open(Handle handle) { return {this, Live(handle)}; }

bool LeaseTable::Grant::Charge(StoreIndex store, uint64_t bytes, uint64_t limit_bytes) {
  if (lease_ == nullptr || store.value == StoreIndex::kNone) return false;
  std::vector<uint64_t>& all = table_->charged_;
  if (store.value >= all.size()) all.resize(store.value + 1u);
  uint64_t& charged = all[store.value];
  if (bytes > limit_bytes || charged > limit_bytes - bytes) return false;
  auto it = std::find_if(lease_->charges.begin(), lease_->charges.end(),
                         [store](const StoreCharge& c) { return c.store == store; });
  if (it == lease_->charges.end()) {
    lease_->charges.push_back({store, bytes});
  } else {
    it->bytes += bytes;
  }
  charged += bytes;
  table_->charged_total_ += bytes;
  return true;
}

bool LeaseTable::Charge(Handle handle, StoreIndex store, uint64_t bytes, uint64_t limit_bytes) {
  return Open(handle).Charge(store, bytes, limit_bytes);
}

void LeaseTable::SetEntries(Handle handle, absl::Span<const LeasedEntry> entries) {
  if (Lease* lease = Live(handle); lease != nullptr) {
    lease->entries.assign(entries.begin(), entries.end());
  }
}

LeaseId LeaseTable::id(Handle handle) const {
  const Lease* lease = Live(handle);
  return lease == nullptr ? LeaseId() : lease->id;
}

uint32_t LeaseTable::until_tick(Handle handle) const {
  const Lease* lease = Live(handle);
  return lease == nullptr ? 0 : lease->until_tick;
}

void LeaseTable::Abandon(Handle handle) {
  if (Live(handle) != nullptr) End(handle.slot);
}

void LeaseTable::End(uint32_t slot) {
  Lease& lease = leases_[slot];
  for (const StoreCharge& charge : lease.charges) {
    charged_[charge.store.value] -= charge.bytes;
    charged_total_ -= charge.bytes;
  }
  if (lease.prev == Handle::kNone) {
    wheel_[lease.until_tick % kWheelSlots] = lease.next;
  } else {
    leases_[lease.prev].next = lease.next;
  }
  if (lease.next != Handle::kNone) leases_[lease.next].prev = lease.prev;
  PartOf(lease.id).erase(lease.id);
  lease.live = false;
  lease.charges.clear();
  lease.entries = std::vector<LeasedEntry>();
  free_.push_back(slot);
  --live_;
}

bool LeaseTable::Release(const LeaseId& id, MonoTime now, std::vector<LeasedEntry>* entries,
                         uint32_t* until_tick) {
  const auto& part = PartOf(id);
  const auto it = part.find(id);
  if (it == part.end()) return false;
  const uint32_t slot = it->second;
  Lease& lease = leases_[slot];
  // Past its time its entries may be under later leases already, which do not count it.
  const bool in_time = lease.until_tick > TickOf(now);
  *until_tick = lease.until_tick;
  if (in_time) *entries = std::move(lease.entries);
  End(slot);
  return in_time;
}

bool LeaseTable::Expire(MonoTime now, uint32_t max) {
  const uint32_t now_tick = TickOf(now);
  while (live_ > 0 && wheel_tick_ <= now_tick) {
    uint32_t& head = wheel_[wheel_tick_ % kWheelSlots];
    while (head != Handle::kNone) {
      if (max-- == 0) return true;
      End(head);
    }
    ++wheel_tick_;
  }
  if (live_ == 0) wheel_tick_ = now_tick;
  return false;
}

uint64_t LeaseTable::charged_bytes(StoreIndex store) const {
  return store.value < charged_.size() ? charged_[store.value] : 0;
}

}  // namespace cistern::master
