// What each peer makes the store hold by reading slowly (docs: a get's extents stay in place until
// its bytes have left).
#ifndef CISTERN_STORE_PEER_LEDGER_H_
#define CISTERN_STORE_PEER_LEDGER_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "transport/server.h"

namespace cistern::store {

// Promise: the answers to one peer (a client process, whatever its number of connections) hold more
// than `share_bytes` of extents only while the peer takes them at a fair pace, and none of them
// long after its deadline; else its connections that have such answers are cut, which lets go of
// the extents. A peer that reads as it should may have any number of bytes on their way.
//
// Role: gets enter what they hold; the wire's taking of bytes is the progress; the maintenance
// thread judges. Thread-safe. Must outlive every Hold.
class PeerLedger {
 public:
  struct Options {
    uint64_t share_bytes = 0;
    // Over its share a peer takes bytes at this pace in every such period, or is cut: all of the
    // share in ten seconds, but nobody need be faster than max_pace.
    absl::Duration period = absl::Seconds(3);
    uint64_t max_pace_bytes_per_second = 8 << 20;
    // How long after its deadline an answer may still be on its way: the caller's cancel is there
    // long before.
    absl::Duration late = absl::Seconds(1);
  };
  explicit PeerLedger(const Options& options);
  ~PeerLedger();

  struct Peer;
  struct Entry;

  // What one answer holds; ends with it. Move-only; one thread at a time.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { End(); }
    // The wire has taken `bytes` more.
    void Took(uint64_t bytes);

   private:
    friend class PeerLedger;
    void End();
    PeerLedger* ledger_ = nullptr;
    std::list<Entry>::iterator entry_;
  };
  // `connection` must live as long as the hold. `bytes`: of the extents held.
  Hold Begin(transport::ServerConnection& connection, uint64_t bytes, MonoTime deadline);

  // Cuts who has to be cut. Call it several times a period.
  void Judge(MonoTime now);

  struct Totals {
    uint64_t held_bytes = 0;
    uint64_t peers = 0;  // that something is held for
    uint64_t cut = 0;    // connections, since the start
  };
  Totals totals() const;

 private:
  uint64_t Pace() const;
  // Whether the peer is over its share and has not kept the pace for a whole period.
  bool IsSlowLocked(Peer& peer, MonoTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(std::list<Entry>::iterator entry);

  const Options options_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::unique_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);
  uint64_t cut_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One peer's account. Its pointer is stable.
struct PeerLedger::Peer {
  std::atomic<uint64_t> taken_bytes{0};  // ever
  uint64_t held_bytes = 0;
  uint64_t answers = 0;
  MonoTime period_start = MonoTime::Infinite();  // infinite: within its share
  uint64_t taken_at_start = 0;
};

struct PeerLedger::Entry {
  uint64_t key = 0;
  Peer* peer = nullptr;
  transport::ServerConnection* connection = nullptr;
  uint64_t bytes = 0;
  MonoTime deadline;
  bool cut = false;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_PEER_LEDGER_H_
