// What the data plane's calls need of the daemon. Everything is borrowed and outlives them.
#ifndef CISTERN_STORE_SERVICE_CONTEXT_H_
#define CISTERN_STORE_SERVICE_CONTEXT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "store/chunk_store.h"
#include "store/peer_ledger.h"
#include "store/room_keeper.h"
#include "transport/server.h"

namespace cistern::store {

// The longest that a client may give a call (its library's bound, see proto/config.proto).
inline constexpr absl::Duration kLongestCall = absl::Hours(1);

// When the caller's patience ends. Never later than an hour from now, whatever a peer says: extents
// and references are held until then.
inline MonoTime DeadlineOf(const transport::ServerCall& call, uint32_t deadline_ms) {
  return call.received_at() + std::min(absl::Milliseconds(deadline_ms), kLongestCall);
}

struct ServiceContext {
  ChunkStore* chunks = nullptr;
  RoomKeeper* room = nullptr;
  PeerLedger* peers = nullptr;
  Clock* clock = nullptr;
  // New records were appended: the session should send them.
  std::function<void()> poke_session;
  // Runs work that hashes or walks much on the maintenance thread; false: its queue is full.
  std::function<bool(absl::AnyInvocable<void()>)> run_in_background;
  // Runs the verifying of gets, a slice a task, on a thread of its own: gets that have much to
  // verify hold up neither the loop threads nor the maintenance thread. False: its queue is full.
  std::function<bool(absl::AnyInvocable<void()>)> run_verifying;
  // This process's random number: what it tells that means nothing to another process carries it.
  uint64_t incarnation = 0;
  // Payload bytes of answers to gets: counted when the stream is handed to the wire.
  std::atomic<uint64_t>* got_bytes = nullptr;
  uint64_t max_batch_payload_bytes = uint64_t{4} << 30;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_SERVICE_CONTEXT_H_
