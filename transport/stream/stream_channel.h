// A channel over stream sockets: lanes, and which of them carries a call. The wires (tcp, shm) say
// how.
#ifndef CISTERN_TRANSPORT_STREAM_STREAM_CHANNEL_H_
#define CISTERN_TRANSPORT_STREAM_STREAM_CHANNEL_H_

#include <memory>
#include <string>

#include "transport/channel.h"
#include "transport/identity.h"
#include "transport/io_context.h"
#include "transport/stream/link.h"

namespace cistern::transport {

struct StreamChannelOptions {
  std::shared_ptr<ClientWire> wire;
  LocalIdentity identity;
  std::string expected_peer_id;  // 16 bytes; empty = any
  int connections = 2;           // for payload, beside one kept for small messages
  bool separate_small_lane = true;
  absl::Duration connect_timeout = absl::Seconds(2);
  Clock* clock = &Clock::Real();
};
// Makes no connection yet.
std::unique_ptr<Channel> MakeStreamChannel(IoContext* io, const StreamChannelOptions& options);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STREAM_STREAM_CHANNEL_H_
