#include "store/peer_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::store {
namespace {

// Connections of a process share its incarnation; one that names none stands for itself.
uint64_t KeyOf(const transport::ServerConnection& connection) {
  const uint64_t incarnation = connection.peer().incarnation;
  return incarnation != 0 ? incarnation : connection.id();
}

}  // namespace

PeerLedger::PeerLedger(const Options& options) : options_(options) {}

PeerLedger::~PeerLedger() { CISTERN_CHECK(entries_.empty()); }

PeerLedger::Hold& PeerLedger::Hold::operator=(Hold&& other) noexcept {
  if (this == &other) return *this;
  End();
  ledger_ = std::exchange(other.ledger_, nullptr);
  entry_ = other.entry_;
  return *this;
}

void PeerLedger::Hold::Took(uint64_t bytes) {
  if (ledger_ != nullptr) entry_->peer->taken_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void PeerLedger::Hold::End() {
  if (ledger_ != nullptr) std::exchange(ledger_, nullptr)->End(entry_);
}

PeerLedger::Hold PeerLedger::Begin(transport::ServerConnection& connection, uint64_t bytes,
                                   MonoTime deadline) {
  Hold hold;
  hold.ledger_ = this;
  const uint64_t key = KeyOf(connection);
  MutexLock lock(mutex_);
  std::unique_ptr<Peer>& peer = peers_[key];
  if (peer == nullptr) peer = std::make_unique<Peer>();
  peer->held_bytes += bytes;
  ++peer->answers;
  entries_.push_back({key, peer.get(), &connection, bytes, deadline, false});
  hold.entry_ = std::prev(entries_.end());
  return hold;
}

void PeerLedger::End(std::list<Entry>::iterator entry) {
  MutexLock lock(mutex_);
  Peer& peer = *entry->peer;
  peer.held_bytes -= entry->bytes;
  if (--peer.answers == 0) peers_.erase(entry->key);
  entries_.erase(entry);
}

uint64_t PeerLedger::Pace() const {
  return std::min(options_.share_bytes / 10, options_.max_pace_bytes_per_second);
}

bool PeerLedger::IsSlowLocked(Peer& peer, MonoTime now) {
  if (peer.held_bytes <= options_.share_bytes) {
    peer.period_start = MonoTime::Infinite();
    return false;
  }
  const uint64_t taken = peer.taken_bytes.load(std::memory_order_relaxed);
  if (peer.period_start == MonoTime::Infinite()) {
    peer.period_start = now;
    peer.taken_at_start = taken;
    return false;
  }
  const absl::Duration passed = now - peer.period_start;
  if (passed < options_.period) return false;
  const double due = static_cast<double>(Pace()) * absl::ToDoubleSeconds(passed);
  if (static_cast<double>(taken - peer.taken_at_start) < due) return true;
  peer.period_start = now;
  peer.taken_at_start = taken;
  return false;
}

void PeerLedger::Judge(MonoTime now) {
  MutexLock lock(mutex_);
  absl::flat_hash_map<const Peer*, bool> slow;
  for (const auto& [key, peer] : peers_) slow[peer.get()] = IsSlowLocked(*peer, now);
  for (Entry& entry : entries_) {
    if (entry.cut) continue;
    const bool late = now > entry.deadline + options_.late;
    if (!late && !slow[entry.peer]) continue;
    entry.cut = true;
    ++cut_;
    // Under the lock: the connection lives as long as the entry.
    entry.connection->Cut(
        late ? absl::DeadlineExceededError("it still reads an answer whose deadline has passed")
             : absl::ResourceExhaustedError(
                   absl::StrCat("it reads too slowly for the ", entry.peer->held_bytes,
                                " bytes held for it; its share is ", options_.share_bytes)));
  }
}

PeerLedger::Totals PeerLedger::totals() const {
  MutexLock lock(mutex_);
  Totals totals;
  for (const auto& [key, peer] : peers_) totals.held_bytes += peer->held_bytes;
  totals.peers = peers_.size();
  totals.cut = cut_;
  return totals;
}

}  // namespace cistern::store
