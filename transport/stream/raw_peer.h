// A peer that speaks to a stream server byte by byte, rightly or wrongly: for tests.
#ifndef CISTERN_TRANSPORT_STREAM_RAW_PEER_H_
#define CISTERN_TRANSPORT_STREAM_RAW_PEER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "transport/frame.h"
#include "transport/identity.h"

namespace cistern::transport {

class RawPeer {
 public:
  // Connects to 127.0.0.1. A small receive buffer makes a slow reader of it.
  explicit RawPeer(uint16_t port, int receive_buffer_bytes = 0);
  // Connects to a UNIX socket.
  explicit RawPeer(const std::string& path);
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  bool connected() const { return connected_; }
  // False when the server has closed.
  bool Send(std::string_view bytes);
  bool SendFrame(FrameType type, uint64_t id, std::string_view meta, std::string_view payload = {});

  // Bytes with descriptors (UNIX sockets). False also when the kernel refuses.
  bool SendWithFds(std::string_view bytes, const std::vector<int>& fds);
  // Descriptors that came so far; closed with the peer.
  const std::vector<int>& fds() const { return fds_; }

  struct Frame {
    FrameHeader header;
    std::string meta;
    std::string payload;
  };
  // Nothing when the server closed or `patience` ran out.
  std::optional<Frame> Receive(absl::Duration patience = absl::Seconds(10));
  // Takes `bytes` of what the server sends, whatever they are. False when it closed first.
  bool Drain(size_t bytes, absl::Duration patience = absl::Seconds(10));
  // Whether the server closes within `patience`; what it sends before is thrown away.
  bool WaitClosed(absl::Duration patience = absl::Seconds(10));
  // The whole handshake; false if refused.
  bool Handshake(const LocalIdentity& identity, bool small_lane = false);
  // What the server refused it with.
  const std::string& refusal() const { return refusal_; }

 private:
  bool ReceiveBytes(char* out, size_t bytes, absl::Duration patience);
  // As recv(), keeping descriptors that come along.
  ssize_t ReceiveSome(void* out, size_t bytes);
  std::vector<int> fds_;
  std::string refusal_;
  int fd_;
  bool connected_ = false;
};

// A frame's bytes, right in every field.
std::string RawFrame(FrameType type, uint64_t id, std::string_view meta, std::string_view payload);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STREAM_RAW_PEER_H_
