// The fake wire: server and channels of one process, joined by a network that exists only as a
// seeded queue of events. Messages take random times and overtake those of other calls, payload is
// copied late (never after its call has ended), connections are cut.
#ifndef CISTERN_TRANSPORT_FAKE_FAKE_H_
#define CISTERN_TRANSPORT_FAKE_FAKE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "transport/channel.h"
#include "transport/identity.h"
#include "transport/io_context.h"
#include "transport/server.h"

namespace cistern::transport {

class FakeEngine;

// Thread-safe. Everything that happens in it (handlers, callbacks of calls, copies) happens on one
// thread: its own, or, with `stepped`, the one that calls Step and RunUntilIdle. The same seed and
// the same calls then give the same run. Must outlive its servers and channels.
class FakeNetwork {
 public:
  struct Options {
    uint64_t seed = 1;
    Clock* clock = &Clock::Real();
    // No thread: with a FakeClock, say. IoContext::Wait then needs another thread that steps.
    bool stepped = false;
    // Each message takes a time between these.
    absl::Duration min_delay = absl::ZeroDuration();
    absl::Duration max_delay = absl::ZeroDuration();
    // A piece of payload is copied up to this long after it arrived.
    absl::Duration max_copy_delay = absl::ZeroDuration();
    // One message in so many cuts its connection; 0 = none.
    uint32_t cut_one_in = 0;
    uint64_t payload_piece_bytes = 256 << 10;
  };
  explicit FakeNetwork(const Options& options);
  ~FakeNetwork();

  struct ServerOptions {
    uint16_t port = 0;    // 0 = any free one
    ServerLimits limits;  // of time: none is kept, there are no sockets to stall
    LocalIdentity identity;
  };
  absl::StatusOr<std::unique_ptr<WireServer>> Listen(const ServerOptions& options,
                                                     RequestHandler* handler);
  struct ChannelOptions {
    uint16_t port = 0;
    LocalIdentity identity;
    std::string expected_peer_id;
  };
  std::unique_ptr<Channel> Connect(IoContext* io, const ChannelOptions& options);

  // Stepped only. Runs what is due; false if nothing was.
  bool Step();
  void RunUntilIdle();
  // When the next event is due; infinite if none is queued.
  MonoTime NextEvent() const;
  // Cuts every connection to the server at `port` now.
  void CutConnections(uint16_t port);

 private:
  const std::shared_ptr<FakeEngine> engine_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_FAKE_FAKE_H_
