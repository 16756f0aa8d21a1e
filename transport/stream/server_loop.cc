#include "transport/stream/server_loop.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "transport/stream/server_connection.h"

namespace cistern::transport {
namespace {

constexpr int kMaxEvents = 128;
constexpr int kAcceptsPerRound = 64;
constexpr int kLongestSleepMs = 60'000;
constexpr uint64_t kWakeToken = 0;
constexpr uint64_t kListenToken = ~uint64_t{0};
constexpr uint64_t kPartToken = ~uint64_t{0} - 1;
// Set in the token of a connection's extra descriptor.
constexpr uint64_t kExtraBit = uint64_t{1} << 63;
// A loop that has not come round by then hangs.
constexpr absl::Duration kHungAfter = absl::Seconds(5);
// How long accepting rests when not even the spare descriptor helped.
constexpr absl::Duration kAcceptRest = absl::Milliseconds(100);

thread_local const LoopInbox* t_inbox = nullptr;

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

absl::Status Watch(int epoll_fd, int fd, uint32_t events, uint64_t token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "epoll_ctl");
}

}  // namespace

bool LoopInbox::Post(absl::AnyInvocable<void()>& fn) {
  MutexLock lock(mutex_);
  if (stopped_) return false;
  queue_.push_back(std::move(fn));
  if (!woken_) {
    woken_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(wake_fd_, &one, sizeof(one));
  }
  return true;
}

bool LoopInbox::OnLoopThread() const { return t_inbox == this; }

ServerLoop::ServerLoop(std::shared_ptr<ServerShared> shared, std::vector<ServerLoop*>* all)
    : shared_(std::move(shared)), all_(all), inbox_(std::make_shared<LoopInbox>()) {}

ServerLoop::~ServerLoop() {
  Stop();
  CloseListener();
  for (const int fd : {epoll_fd_, wake_fd_, spare_fd_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status ServerLoop::Start(int listen_fd) {
  listen_fd_ = listen_fd;
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return ErrnoStatus(errno, "epoll_create1");
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) return ErrnoStatus(errno, "eventfd");
  CISTERN_RETURN_IF_ERROR(Watch(epoll_fd_, wake_fd_, EPOLLIN, kWakeToken));
  if (!shared_->options.wire->has_sockets()) {
    CISTERN_ASSIGN_OR_RETURN(part_, shared_->options.wire->MakeLoopPart());
    CISTERN_RETURN_IF_ERROR(Watch(epoll_fd_, part_->fd(), EPOLLIN, kPartToken));
  }
  if (listen_fd_ >= 0) {
    spare_fd_ = OpenSpare();
    CISTERN_RETURN_IF_ERROR(Watch(epoll_fd_, listen_fd_, EPOLLIN, kListenToken));
  }
  {
    MutexLock lock(inbox_->mutex_);
    inbox_->wake_fd_ = wake_fd_;
  }
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void ServerLoop::Stop() {
  if (!thread_.joinable()) return;
  absl::AnyInvocable<void()> stop = [this] { stop_ = true; };
  inbox_->Post(stop);
  thread_.join();
}

void ServerLoop::StopAccepting() {
  struct Done {
    Mutex mutex;
    CondVar changed;
    bool done ABSL_GUARDED_BY(mutex) = false;
  };
  const auto closed = std::make_shared<Done>();
  absl::AnyInvocable<void()> close_listener = [this, closed] {
    CloseListener();
    MutexLock lock(closed->mutex);
    closed->done = true;
    closed->changed.NotifyAll();
  };
  if (!inbox_->Post(close_listener)) return;  // stopped: it is closed
  // The loop runs what is in its inbox also when it stops. One that hangs is not waited for.
  MutexLock lock(closed->mutex);
  while (!closed->done && closed->changed.WaitFor(closed->mutex, kHungAfter)) {
  }
}

void ServerLoop::CloseListener() {
  if (listen_fd_ < 0) return;
  if (!shared_->options.wire->has_sockets()) {
    // Its descriptor goes on telling of connections that end.
    shared_->options.wire->StopListening();
    return;
  }
  // What waits in the backlog is reset by the kernel, as what dials from now on is refused.
  close(listen_fd_);
  listen_fd_ = -1;
}

void ServerLoop::Loop() {
  t_inbox = inbox_.get();
  epoll_event events[kMaxEvents];
  while (!stop_) {
    const int n = epoll_wait(epoll_fd_, events, kMaxEvents, SpinOrTimeoutMs());
    now_ = shared_->options.clock->Mono();
    if (n > 0) spin_until_ = now_ + shared_->options.spin;
    for (int i = 0; i < n; ++i) {
      const uint64_t token = events[i].data.u64;
      if (token == kWakeToken) {
        RunInbox();
      } else if (token == kListenToken) {
        Accept();
      } else if (token == kPartToken) {
        part_->OnReadable();
      } else if (const auto it = connections_.find(token & ~kExtraBit); it != connections_.end()) {
        const std::shared_ptr<ServerConnectionImpl> connection = it->second;
        if ((token & kExtraBit) != 0) {
          connection->OnExtraEvent();
        } else {
          connection->OnEvents(events[i].events);
        }
      }
    }
    RunTurns();
    RunTimers();
    removed_.clear();
  }
  CloseAll();
}

int ServerLoop::TimeoutMs() {
  if (!soon_.empty()) return 0;
  if (timers_.empty()) return -1;
  const absl::Duration left = timers_.top().when - shared_->options.clock->Mono();
  if (left <= absl::ZeroDuration()) return 0;
  return static_cast<int>(std::min<int64_t>(
      absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), kLongestSleepMs));
}

int ServerLoop::SpinOrTimeoutMs() { return now_ < spin_until_ ? 0 : TimeoutMs(); }

void ServerLoop::RunInbox() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(wake_fd_, &count, sizeof(count));
  {
    MutexLock lock(inbox_->mutex_);
    batch_.swap(inbox_->queue_);
    inbox_->woken_ = false;
  }
  for (auto& fn : batch_) fn();
  batch_.clear();
}

void ServerLoop::RunSoon(ServerConnectionImpl* connection) {
  if (connection->queued_for_turn) return;
  connection->queued_for_turn = true;
  soon_.push_back(connection->shared_from_this());
}

// One turn for each that was waiting: those that want another are in the next round, after the
// sockets were looked at again.
void ServerLoop::RunTurns() {
  std::vector<std::shared_ptr<ServerConnectionImpl>> round;
  round.swap(soon_);
  for (const auto& connection : round) {
    connection->queued_for_turn = false;
    connection->Turn();
  }
}

void ServerLoop::SetTimer(ServerConnectionImpl* connection, MonoTime when) {
  timers_.push({when, connection->id()});
}

void ServerLoop::RunTimers() {
  while (!timers_.empty() && timers_.top().when <= now_) {
    const Timer timer = timers_.top();
    timers_.pop();
    if (timer.connection == kListenToken) {
      if (listen_fd_ >= 0) Watch(epoll_fd_, listen_fd_, EPOLLIN, kListenToken).IgnoreError();
      continue;
    }
    const auto it = connections_.find(timer.connection);
    if (it == connections_.end()) continue;
    const std::shared_ptr<ServerConnectionImpl> connection = it->second;
    // An entry that a sooner one has overtaken.
    if (connection->timer_at < timer.when) continue;
    connection->OnTimer();
  }
}

void ServerLoop::Remove(ServerConnectionImpl* connection) {
  const auto it = connections_.find(connection->id());
  if (it == connections_.end()) return;
  removed_.push_back(std::move(it->second));
  connections_.erase(it);
  shared_->connections.fetch_sub(1, std::memory_order_relaxed);
}

void ServerLoop::Accept() {
  if (listen_fd_ < 0) return;  // closed earlier in this round
  if (part_ != nullptr) return AcceptLinks();
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    SocketAddress peer;
    peer.bytes = sizeof(peer.storage);
    const int fd = accept4(listen_fd_, reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        OutOfDescriptors();
      }
      if (errno == ECONNABORTED || errno == EINTR) continue;
      return;
    }
    if (shared_->connections.load(std::memory_order_relaxed) >=
        shared_->options.limits.max_connections) {
      shared_->refused.fetch_add(1, std::memory_order_relaxed);
      close(fd);
      continue;
    }
    shared_->accepted.fetch_add(1, std::memory_order_relaxed);
    shared_->connections.fetch_add(1, std::memory_order_relaxed);
    ServerLoop* loop = (*all_)[next_loop_++ % all_->size()];
    if (loop == this) {
      Adopt(fd, peer);
      continue;
    }
    absl::AnyInvocable<void()> adopt = [loop, fd, peer] { loop->Adopt(fd, peer); };
    if (!loop->inbox_->Post(adopt)) {
      close(fd);
      shared_->connections.fetch_sub(1, std::memory_order_relaxed);
    }
  }
}

// The listener stays readable while nobody accepts: without this the loop would spin.
void ServerLoop::OutOfDescriptors() {
  CISTERN_LOG_EVERY(Error, absl::Seconds(10), "out of file descriptors: refusing connections; ",
                    "raise the limit (LimitNOFILE=)");
  if (spare_fd_ >= 0) {
    close(spare_fd_);
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      shared_->refused.fetch_add(1, std::memory_order_relaxed);
      close(fd);
    }
    spare_fd_ = OpenSpare();
    if (fd >= 0) return;
  } else {
    spare_fd_ = OpenSpare();
  }
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, listen_fd_, nullptr);
  timers_.push({now_ + kAcceptRest, kListenToken});
}

absl::Status ServerLoop::WatchExtra(ServerConnectionImpl* connection, int fd) {
  return Watch(epoll_fd_, fd, EPOLLIN | EPOLLET, connection->id() | kExtraBit);
}

void ServerLoop::UnwatchExtra(int fd) { epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr); }

void ServerLoop::Adopt(int fd, const SocketAddress& peer) {
  std::string address;
  const absl::Status accepted = shared_->options.wire->OnAccepted(fd, peer, &address);
  auto connection = std::make_shared<ServerConnectionImpl>(
      this, fd, shared_->options.wire->MakeLink(fd), address);
  connections_.emplace(connection->id(), connection);
  const uint32_t events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  if (absl::Status status = Watch(epoll_fd_, fd, events, connection->id()); !status.ok()) {
    connection->Close(status);
    return;
  }
  if (!accepted.ok()) connection->RefuseAtHello(accepted);
  connection->Turn();
}

void ServerLoop::AcceptLinks() {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    ServerLoop* loop = (*all_)[next_loop_ % all_->size()];
    const bool full = shared_->connections.load(std::memory_order_relaxed) >=
                      shared_->options.limits.max_connections;
    absl::StatusOr<AcceptedLink> accepted = shared_->options.wire->Accept(loop->part_.get(), full);
    if (accepted.status().code() == absl::StatusCode::kNotFound) return;
    if (!accepted.ok()) {
      shared_->refused.fetch_add(1, std::memory_order_relaxed);
      CISTERN_LOG_EVERY(Warning, absl::Seconds(10),
                        "refused a connection: ", accepted.status().ToString());
      continue;
    }
    shared_->accepted.fetch_add(1, std::memory_order_relaxed);
    shared_->connections.fetch_add(1, std::memory_order_relaxed);
    ++next_loop_;
    if (loop == this) {
      AdoptLink(*std::move(accepted));
      continue;
    }
    absl::AnyInvocable<void()> adopt = [loop, accepted = *std::move(accepted)]() mutable {
      loop->AdoptLink(std::move(accepted));
    };
    if (!loop->inbox_->Post(adopt)) shared_->connections.fetch_sub(1, std::memory_order_relaxed);
  }
}

void ServerLoop::AdoptLink(AcceptedLink accepted) {
  StreamLink* const link = accepted.link.get();
  auto connection =
      std::make_shared<ServerConnectionImpl>(this, -1, std::move(accepted.link), accepted.address);
  connections_.emplace(connection->id(), connection);
  ServerConnectionImpl* const raw = connection.get();
  part_->Attach(
      link, [raw] { raw->OnLinkEvent(); },
      [weak = std::weak_ptr<ServerConnectionImpl>(connection)] {
        if (const auto self = weak.lock()) self->LinkCut();
      });
  connection->Turn();
}

void ServerLoop::DetachLink(StreamLink* link) {
  if (part_ != nullptr) part_->Detach(link);
}

void ServerLoop::CloseAll() {
  CloseListener();
  // Answers that were given just now have not been written yet.
  RunInbox();
  RunTurns();
  const absl::Status stopping = absl::UnavailableError("the server is stopping");
  // Posted work may still bring connections and answers: until nothing more can come.
  for (bool last = false; !last;) {
    RunInbox();
    std::vector<std::shared_ptr<ServerConnectionImpl>> connections;
    for (const auto& [id, connection] : connections_) connections.push_back(connection);
    for (const auto& connection : connections) connection->Close(stopping);
    MutexLock lock(inbox_->mutex_);
    last = inbox_->queue_.empty();
    inbox_->stopped_ = last;
  }
  soon_.clear();
  removed_.clear();
}

}  // namespace cistern::transport
