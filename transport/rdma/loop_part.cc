#include "transport/rdma/loop_part.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/status.h"
#include "transport/rdma/accepted_link.h"

namespace cistern::transport::rdma {
namespace {

// Messages that may arrive between two looks; beyond them peers' devices wait and repeat.
constexpr uint32_t kSharedReceives = 512;
constexpr uint32_t kSharedSends = 1024;

}  // namespace

void Peer::Gone() {
  std::function<void()> cut;
  {
    MutexLock lock(mutex_);
    gone_.store(true, std::memory_order_release);
    cut = cut_;
  }
  if (cut != nullptr) cut();
}

void Peer::Listen(std::function<void()> cut) {
  bool gone = false;
  {
    MutexLock lock(mutex_);
    cut_ = cut;
    gone = gone_.load(std::memory_order_acquire);
  }
  if (gone && cut != nullptr) cut();
}

absl::StatusOr<std::unique_ptr<RdmaLoopPart>> RdmaLoopPart::Create(std::shared_ptr<Host> host) {
  std::unique_ptr<RdmaLoopPart> made(new RdmaLoopPart(std::move(host)));
  made->epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (made->epoll_fd_ < 0) return ErrnoStatus(errno, "epoll_create1");
  for (const auto& device : made->host_->devices()) {
    auto part = std::make_unique<DevicePart>();
    part->device = device.get();
    CISTERN_ASSIGN_OR_RETURN(part->channel, CreateCompletionChannel(device->context));
    const int fd = part->channel->fd;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    CISTERN_ASSIGN_OR_RETURN(part->receives,
                             SharedReceives::Create(device->domain.get(), kSharedReceives));
    CISTERN_ASSIGN_OR_RETURN(part->sends,
                             MessageBuffers::Create(device->domain.get(), kSharedSends));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = part.get();
    if (epoll_ctl(made->epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
      return ErrnoStatus(errno, "epoll_ctl");
    }
    made->parts_.push_back(std::move(part));
  }
  return made;
}

RdmaLoopPart::~RdmaLoopPart() {
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

const RdmaLoopPart::DevicePart* RdmaLoopPart::Find(const ibv_context* context) const {
  for (const auto& part : parts_) {
    if (part->device->context == context) return part.get();
  }
  return nullptr;
}

void RdmaLoopPart::OnReadable() {
  const auto verbs = LoadVerbs();
  if (!verbs.ok()) return;
  for (const auto& part : parts_) {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    // Acknowledged at once: the end of a completion queue waits for that.
    while ((*verbs)->get_cq_event(part->channel.get(), &queue, &context) == 0) {
      (*verbs)->ack_cq_events(queue, 1);
      const auto it = links_.find(queue);
      // Else not adopted yet, which looks at everything; or closed.
      if (it == links_.end()) continue;
      it->second.link->OnCompletionEvent();
      const std::function<void()> woken = it->second.woken;
      woken();
    }
  }
}

void RdmaLoopPart::Attach(StreamLink* link, std::function<void()> woken,
                          std::function<void()> cut) {
  auto* const accepted = static_cast<AcceptedRdmaLink*>(link);
  links_[accepted->endpoint().completion_queue()] = {accepted, std::move(woken)};
  // An event may have come already, and been passed over: the next look asks for another.
  accepted->OnCompletionEvent();
  accepted->peer().Listen(std::move(cut));
}

void RdmaLoopPart::Detach(StreamLink* link) {
  auto* const accepted = static_cast<AcceptedRdmaLink*>(link);
  accepted->peer().Listen(nullptr);
  links_.erase(accepted->endpoint().completion_queue());
}

}  // namespace cistern::transport::rdma
