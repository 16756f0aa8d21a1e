// Owners of verbs objects: each is destroyed with its owner, in the process that made it only. (In
// a fork's child the owner lets go of the object without a word to the kernel, which would destroy
// the parent's.)
//
// Order. What is made from an object goes before it: queue pairs, then their completion queues,
// shared receive queues and memory, then the protection domain, then the device. Two rules that the
// kernel's software device makes dear to break:
//  - a memory window that is still bound goes (or is invalidated) before its queue pair: there,
//    destroying the queue pair first takes 50 s, and so does the end of a process that did;
//  - a completion channel goes after its completion queue, and every event taken from it must have
//    been acknowledged, since destroying the queue waits for that. The same goes for events of a
//    connection manager's id: CmEvent acknowledges with its owner.
// One that cannot be destroyed (EBUSY: an order gone wrong, a mistake of ours) is logged and left.
//
// Owners are values for one thread at a time; what they own is as thread-safe as verbs are. Make
// them by the functions below: an owner remembers the process that it was constructed in.
#ifndef CISTERN_TRANSPORT_RDMA_HANDLES_H_
#define CISTERN_TRANSPORT_RDMA_HANDLES_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/rdma/verbs.h"

namespace cistern::transport::rdma {

// Destroys verbs objects of type Object; does nothing in a fork's child.
template <typename Object>
class Destroyer {
 public:
  void operator()(Object* object) const {
    if (getpid() == maker_) Destroy(object);
  }

 private:
  static void Destroy(Object* object);  // Specialised in handles.cc.
  pid_t maker_ = getpid();
};

template <typename Object>
using Owned = std::unique_ptr<Object, Destroyer<Object>>;

using Context = Owned<ibv_context>;  // an open device
using ProtectionDomain = Owned<ibv_pd>;
using MemoryRegion = Owned<ibv_mr>;
using MemoryWindow = Owned<ibv_mw>;
using CompletionChannel = Owned<ibv_comp_channel>;
using CompletionQueue = Owned<ibv_cq>;
using SharedReceiveQueue = Owned<ibv_srq>;
using QueuePair = Owned<ibv_qp>;
using CmChannel = Owned<rdma_event_channel>;
using CmId = Owned<rdma_cm_id>;  // with the queue pair that rdma_create_qp gave it, if it has one
using CmEvent = Owned<rdma_cm_event>;

// Each error names the call and, by its code, the next step (base/status.h). All borrow what they
// are made from. They call LoadVerbs themselves.

// By the device's name ("mlx5_0"). NotFound: there is none of that name.
absl::StatusOr<Context> OpenDevice(const char* name);
absl::StatusOr<ProtectionDomain> AllocateProtectionDomain(ibv_context* context);
// `access`: IBV_ACCESS_*. ResourceExhausted names the limit of locked memory where that, by what
// the process holds already, is why. The memory must stay mapped as long as the region lives.
absl::StatusOr<MemoryRegion> Register(ibv_pd* pd, void* address, size_t length,
                                      unsigned int access);
// Device memory that another driver exported: bytes [offset, offset + length) of the dmabuf `fd`,
// which peers and we name by `iova` onwards. Unimplemented: this libibverbs has no such call.
absl::StatusOr<MemoryRegion> RegisterDmabuf(ibv_pd* pd, int fd, uint64_t offset, size_t length,
                                            uint64_t iova, unsigned int access);
// Type 2: bound by work requests (IBV_WR_BIND_MW), invalidated by others. Unimplemented: the device
// has none.
absl::StatusOr<MemoryWindow> AllocateWindow(ibv_pd* pd);
absl::StatusOr<CompletionChannel> CreateCompletionChannel(ibv_context* context);
// At least `entries` completions fit; `channel` may be null.
absl::StatusOr<CompletionQueue> CreateCompletionQueue(ibv_context* context, int entries,
                                                      ibv_comp_channel* channel, int vector = 0);
absl::StatusOr<SharedReceiveQueue> CreateSharedReceiveQueue(ibv_pd* pd, uint32_t work_requests,
                                                            uint32_t pieces);
// `attributes` is told what the device gave (capacities of at least what was asked for).
absl::StatusOr<QueuePair> CreateQueuePair(ibv_pd* pd, ibv_qp_init_attr* attributes);

absl::StatusOr<CmChannel> CreateCmChannel();
// `context` comes back with the id's events.
absl::StatusOr<CmId> CreateCmId(rdma_event_channel* channel, void* context);
// Takes over an id that an event brought (RDMA_CM_EVENT_CONNECT_REQUEST).
CmId AdoptCmId(rdma_cm_id* id);
// The next event, waiting for it unless the channel's descriptor is non-blocking (Unavailable then
// means that there is none).
absl::StatusOr<CmEvent> NextCmEvent(rdma_event_channel* channel);

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_HANDLES_H_
