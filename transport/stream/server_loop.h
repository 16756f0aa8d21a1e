// One event loop thread of a stream server.
#ifndef CISTERN_TRANSPORT_STREAM_SERVER_LOOP_H_
#define CISTERN_TRANSPORT_STREAM_SERVER_LOOP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <queue>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "transport/server.h"
#include "transport/stream/socket.h"
#include "transport/stream/stream_server.h"

namespace cistern::transport {

class ServerConnectionImpl;

// What the loops of one server share. Counters are relaxed: read for people only.
struct ServerShared {
  StreamServerOptions options;
  RequestHandler* handler = nullptr;
  std::atomic<uint64_t> connections{0};
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> handshake_failures{0};
  std::atomic<uint64_t> protocol_errors{0};
  std::atomic<uint64_t> stalled{0};
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> calls{0};
};

// Work for a loop thread from others; outlives the loop, so that calls may.
class LoopInbox {
 public:
  // False once the loop has stopped: `fn` is still the caller's then.
  bool Post(absl::AnyInvocable<void()>& fn);
  bool OnLoopThread() const;

 private:
  friend class ServerLoop;
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  int wake_fd_ ABSL_GUARDED_BY(mutex_) = -1;
  std::vector<absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
};

// Owns its connections. Edge-triggered: a connection is told once that it can read or write and
// keeps that in mind; those with more to do take turns of bounded length. Methods are the loop
// thread's unless they say otherwise.
class ServerLoop {
 public:
  ServerLoop(std::shared_ptr<ServerShared> shared, std::vector<ServerLoop*>* all);
  ~ServerLoop();
  // Before the thread runs. `listen_fd` -1: another loop accepts. Owns it unless it is the wire's.
  absl::Status Start(int listen_fd);
  // From any thread but the loop's: closes all connections and joins.
  void Stop();
  // From any thread but the loop's: closes the listener, if it has it, and waits for that.
  void StopAccepting();

  const std::shared_ptr<LoopInbox>& inbox() const { return inbox_; }
  ServerShared& shared() { return *shared_; }
  // Monotonic time, read once per round.
  MonoTime now() const { return now_; }
  // The connection wants another turn in the next round.
  void RunSoon(ServerConnectionImpl* connection);
  // The connection wants OnTimer at `when`.
  void SetTimer(ServerConnectionImpl* connection, MonoTime when);
  // Edges of `fd`, a descriptor that the connection shares with its peer, wake it too.
  absl::Status WatchExtra(ServerConnectionImpl* connection, int fd);
  // Before `fd` is closed: while the peer has it open it would go on waking us.
  void UnwatchExtra(int fd);
  // Nothing wakes the connection for `link` any more.
  void DetachLink(StreamLink* link);
  // The connection is closed: drops it at the end of the round.
  void Remove(ServerConnectionImpl* connection);

 private:
  struct Timer {
    MonoTime when;
    uint64_t connection;  // 0: the listener
    bool operator>(const Timer& other) const { return when > other.when; }
  };
  void Loop();
  void Accept();
  void Adopt(int fd, const SocketAddress& peer);
  // The same of a wire without sockets.
  void AcceptLinks();
  void AdoptLink(AcceptedLink accepted);
  void CloseListener();
  void OutOfDescriptors();
  void RunInbox();
  void RunTurns();
  void RunTimers();
  int TimeoutMs();
  // The same, or 0 where the loop is to look on.
  int SpinOrTimeoutMs();
  void CloseAll();

  const std::shared_ptr<ServerShared> shared_;
  std::vector<ServerLoop*>* const all_;
  const std::shared_ptr<LoopInbox> inbox_;
  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  int listen_fd_ = -1;
  std::unique_ptr<LoopPart> part_;
  int spare_fd_ = -1;  // given up to accept and refuse when descriptors run out
  size_t next_loop_ = 0;
  MonoTime now_;
  MonoTime spin_until_;
  bool stop_ = false;
  std::unordered_map<uint64_t, std::shared_ptr<ServerConnectionImpl>> connections_;
  std::vector<std::shared_ptr<ServerConnectionImpl>> soon_;
  std::vector<std::shared_ptr<ServerConnectionImpl>> removed_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<absl::AnyInvocable<void()>> batch_;
  std::thread thread_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STREAM_SERVER_LOOP_H_
