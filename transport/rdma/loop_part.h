// What a server's loop has of the devices: completion channels, shared receives, message buffers.
#ifndef CISTERN_TRANSPORT_RDMA_LOOP_PART_H_
#define CISTERN_TRANSPORT_RDMA_LOOP_PART_H_

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "transport/rdma/buffers.h"
#include "transport/rdma/host.h"
#include "transport/stream/link.h"

namespace cistern::transport::rdma {

class RdmaLink;

// One accepted peer, as the connection manager's events find it. Thread-safe.
class Peer {
 public:
  bool gone() const { return gone_.load(std::memory_order_acquire); }
  // It has gone away: tells whoever listens, now or from Listen.
  void Gone();
  void Listen(std::function<void()> cut);

 private:
  std::atomic<bool> gone_{false};
  Mutex mutex_;
  std::function<void()> cut_ ABSL_GUARDED_BY(mutex_);
};

class RdmaLoopPart final : public LoopPart {
 public:
  // Of one device. Its links use it as long as they are open.
  struct DevicePart {
    HostDevice* device = nullptr;
    CompletionChannel channel;
    std::shared_ptr<SharedReceives> receives;
    std::shared_ptr<MessageBuffers> sends;
  };

  static absl::StatusOr<std::unique_ptr<RdmaLoopPart>> Create(std::shared_ptr<Host> host);
  ~RdmaLoopPart() override;

  // From any thread. Null: the device is not in use.
  const DevicePart* Find(const ibv_context* context) const;

  int fd() const override { return epoll_fd_; }
  void OnReadable() override;
  void Attach(StreamLink* link, std::function<void()> woken, std::function<void()> cut) override;
  void Detach(StreamLink* link) override;

 private:
  struct Attached {
    RdmaLink* link;
    std::function<void()> woken;
  };
  const std::shared_ptr<Host> host_;
  int epoll_fd_ = -1;
  std::vector<std::unique_ptr<DevicePart>> parts_;
  std::unordered_map<const ibv_cq*, Attached> links_;

  explicit RdmaLoopPart(std::shared_ptr<Host> host) : host_(std::move(host)) {}
};

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_LOOP_PART_H_
