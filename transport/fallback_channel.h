// A channel that has two ways to its peer: a better one that may not be open to this process, and
// one that is.
#ifndef CISTERN_TRANSPORT_FALLBACK_CHANNEL_H_
#define CISTERN_TRANSPORT_FALLBACK_CHANNEL_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"
#include "transport/channel.h"

namespace cistern::transport {

struct FallbackOptions {
  // Called when the choice is made, and when another is: on the thread that drives a call, never
  // with a lock held. OK: the better one; else why it is not.
  std::function<void(const absl::Status& why)> on_choice = [](const absl::Status&) {};
  // The better one gets as much of a call's time to answer for the first time.
  absl::Duration patience = absl::Milliseconds(500);
  // It is tried again when it has been passed over for so long.
  absl::Duration retry_after = absl::Seconds(30);
  // No call waits for the better one: the other serves while it is tried. For a wire whose
  // connections take long to make, and longer to fail.
  bool in_background = false;
  Clock* clock = &Clock::Real();
};

// The first call waits for a Ping on the better channel, by the kind of connection that it would
// use itself, and goes to the other if that fails; so do all calls then. The first that is not
// small does so even where small ones were answered. So does a call after one that found the better
// channel cut off; that one ends as on any channel. `in_background` calls go to the other one at
// once in all these cases, and to the better one when a Ping by a connection for payload was
// answered.
std::unique_ptr<Channel> MakeFallbackChannel(std::unique_ptr<Channel> better,
                                             std::unique_ptr<Channel> other,
                                             const FallbackOptions& options);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_FALLBACK_CHANNEL_H_
