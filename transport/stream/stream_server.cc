#include "transport/stream/stream_server.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "transport/stream/server_loop.h"

namespace cistern::transport {
namespace {

class StreamServer final : public WireServer {
 public:
  StreamServer(StreamServerOptions options, RequestHandler* handler)
      : shared_(std::make_shared<ServerShared>()) {
    shared_->options = std::move(options);
    shared_->handler = handler;
  }
  ~StreamServer() override { Stop(); }

  absl::Status Start(int listen_fd);
  std::string address() const override { return shared_->options.address; }
  uint16_t port() const override { return shared_->options.port; }
  ServerStats stats() const override;
  void StopAccepting() override;
  bool Responsive(absl::Duration timeout) override;
  void Stop() override;

 private:
  const std::shared_ptr<ServerShared> shared_;
  std::vector<ServerLoop*> all_;  // fixed before the first thread runs
  std::vector<std::unique_ptr<ServerLoop>> loops_;
  Mutex stop_mutex_;
  bool stopped_ ABSL_GUARDED_BY(stop_mutex_) = false;
};

absl::Status StreamServer::Start(int listen_fd) {
  for (int i = 0; i < std::max(1, shared_->options.io_threads); ++i) {
    loops_.push_back(std::make_unique<ServerLoop>(shared_, &all_));
    all_.push_back(loops_.back().get());
  }
  // The accepting loop last: by then the others run. It owns the socket from here on.
  for (size_t i = loops_.size(); i-- > 0;) {
    const absl::Status status = loops_[i]->Start(i == 0 ? listen_fd : -1);
    if (!status.ok()) {
      if (i != 0 && shared_->options.wire->has_sockets()) close(listen_fd);
      return status;
    }
  }
  return absl::OkStatus();
}

ServerStats StreamServer::stats() const {
  const auto get = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  ServerStats stats;
  stats.connections = get(shared_->connections);
  stats.accepted = get(shared_->accepted);
  stats.refused = get(shared_->refused);
  stats.handshake_failures = get(shared_->handshake_failures);
  stats.protocol_errors = get(shared_->protocol_errors);
  stats.stalled = get(shared_->stalled);
  stats.bytes_in = get(shared_->bytes_in);
  stats.bytes_out = get(shared_->bytes_out);
  stats.calls = get(shared_->calls);
  return stats;
}

void StreamServer::StopAccepting() {
  MutexLock lock(stop_mutex_);
  if (stopped_) return;
  for (const auto& loop : loops_) loop->StopAccepting();
}

bool StreamServer::Responsive(absl::Duration timeout) {
  // Shared with the loops' answers, which may come after this call has given up.
  struct Answers {
    Mutex mutex;
    CondVar changed;
    size_t left ABSL_GUARDED_BY(mutex) = 0;
  };
  const auto answers = std::make_shared<Answers>();
  {
    MutexLock lock(answers->mutex);
    answers->left = loops_.size();
  }
  for (const auto& loop : loops_) {
    absl::AnyInvocable<void()> answer = [answers] {
      MutexLock lock(answers->mutex);
      --answers->left;
      answers->changed.NotifyAll();
    };
    if (!loop->inbox()->Post(answer)) return true;  // it stops: not our question
  }
  const Clock& clock = *shared_->options.clock;
  const MonoTime until = clock.Mono() + timeout;
  MutexLock lock(answers->mutex);
  while (answers->left != 0) {
    const absl::Duration left = until - clock.Mono();
    if (left <= absl::ZeroDuration()) return false;
    answers->changed.WaitFor(answers->mutex, left);
  }
  return true;
}

void StreamServer::Stop() {
  MutexLock lock(stop_mutex_);
  if (stopped_) return;
  stopped_ = true;
  // The accepting one first, so that nothing new reaches the others.
  for (const auto& loop : loops_) loop->Stop();
  if (shared_->options.on_stopped != nullptr) shared_->options.on_stopped();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WireServer>> StartStreamServer(StreamServerOptions options,
                                                              int listen_fd,
                                                              RequestHandler* handler) {
  auto server = std::make_unique<StreamServer>(std::move(options), handler);
  if (absl::Status status = server->Start(listen_fd); !status.ok()) return status;
  return server;
}

}  // namespace cistern::transport
