// What the data plane's calls need of the daemon. Everything is borrowed and outlives them.
#ifndef CISTERN_STORE_SERVICE_CONTEXT_H_
#define CISTERN_STORE_SERVICE_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "store/chunk_store.h"
#include "store/room_keeper.h"

namespace cistern::store {

struct ServiceContext {
  ChunkStore* chunks = nullptr;
  RoomKeeper* room = nullptr;
  Clock* clock = nullptr;
  // New records were appended: the session should send them.
  std::function<void()> poke_session;
  // Runs work that hashes or walks much on the maintenance thread; false: its queue is full.
  std::function<bool(absl::AnyInvocable<void()>)> run_in_background;
  // Payload bytes of answers to gets: counted when the stream is handed to the wire.
  std::atomic<uint64_t>* got_bytes = nullptr;
  uint64_t max_batch_payload_bytes = uint64_t{4} << 30;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_SERVICE_CONTEXT_H_
