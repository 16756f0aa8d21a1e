#include "transport/rdma/handles.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/rdma/locked_memory.h"

namespace cistern::transport::rdma {
namespace {

// Of an object that exists: so the libraries are there.
const Verbs& Loaded() { return **LoadVerbs(); }

// `error`: an errno value, 0 = done.
void LogIfLeft(const char* call, int error) {
  if (error == 0) return;
  CISTERN_LOG_EVERY(Error, absl::Seconds(10), call, ": ", std::strerror(error),
                    "; the object is left behind");
}

// rdma_* functions answer -1 and set errno.
int CmError(int result) { return result == 0 ? 0 : errno; }

template <typename Object>
absl::StatusOr<Owned<Object>> Own(Object* object, const std::string& call) {
  if (object == nullptr) return ErrnoStatus(errno, call);
  return Owned<Object>(object);
}

}  // namespace

template <>
void Destroyer<ibv_context>::Destroy(ibv_context* context) {
  LogIfLeft("ibv_close_device", Loaded().close_device(context));
}
template <>
void Destroyer<ibv_pd>::Destroy(ibv_pd* pd) {
  LogIfLeft("ibv_dealloc_pd", Loaded().dealloc_pd(pd));
}
template <>
void Destroyer<ibv_mr>::Destroy(ibv_mr* mr) {
  LogIfLeft("ibv_dereg_mr", Loaded().dereg_mr(mr));
}
template <>
void Destroyer<ibv_mw>::Destroy(ibv_mw* mw) {
  LogIfLeft("ibv_dealloc_mw", ibv_dealloc_mw(mw));
}
template <>
void Destroyer<ibv_comp_channel>::Destroy(ibv_comp_channel* channel) {
  LogIfLeft("ibv_destroy_comp_channel", Loaded().destroy_comp_channel(channel));
}
template <>
void Destroyer<ibv_cq>::Destroy(ibv_cq* cq) {
  LogIfLeft("ibv_destroy_cq", Loaded().destroy_cq(cq));
}
template <>
void Destroyer<ibv_srq>::Destroy(ibv_srq* srq) {
  LogIfLeft("ibv_destroy_srq", Loaded().destroy_srq(srq));
}
template <>
void Destroyer<ibv_qp>::Destroy(ibv_qp* qp) {
  LogIfLeft("ibv_destroy_qp", Loaded().destroy_qp(qp));
}
template <>
void Destroyer<rdma_event_channel>::Destroy(rdma_event_channel* channel) {
  Loaded().cm.destroy_event_channel(channel);
}
template <>
void Destroyer<rdma_cm_id>::Destroy(rdma_cm_id* id) {
  const ConnectionManager& cm = Loaded().cm;
  if (id->qp != nullptr) cm.destroy_qp(id);
  LogIfLeft("rdma_destroy_id", CmError(cm.destroy_id(id)));
}
template <>
void Destroyer<rdma_cm_event>::Destroy(rdma_cm_event* event) {
  LogIfLeft("rdma_ack_cm_event", CmError(Loaded().cm.ack_cm_event(event)));
}

absl::StatusOr<Context> OpenDevice(const char* name) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  ibv_device** devices = verbs->get_device_list(nullptr);
  if (devices == nullptr) return ErrnoStatus(errno, "ibv_get_device_list");
  absl::StatusOr<Context> context =
      absl::NotFoundError(absl::StrCat("there is no RDMA device \"", name, "\" here"));
  for (ibv_device** device = devices; *device != nullptr; ++device) {
    if (std::strcmp(verbs->get_device_name(*device), name) != 0) continue;
    context = Own(verbs->open_device(*device), absl::StrCat("opening the RDMA device ", name));
    break;
  }
  verbs->free_device_list(devices);
  return context;
}

absl::StatusOr<ProtectionDomain> AllocateProtectionDomain(ibv_context* context) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  return Own(verbs->alloc_pd(context), "ibv_alloc_pd");
}

absl::StatusOr<MemoryRegion> Register(ibv_pd* pd, void* address, size_t length,
                                      unsigned int access) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  ibv_mr* region = RegisterMemory(*verbs, pd, address, length, access);
  if (region != nullptr) return MemoryRegion(region);
  const int error = errno;
  const std::string what = absl::StrCat("registering ", length, " bytes with an RDMA device");
  // The same errno value for want of memory and for the limit.
  if (error == ENOMEM || error == EAGAIN || error == EPERM) {
    const std::string limit = LockedMemoryAdvice(length);
    if (!limit.empty()) return absl::ResourceExhaustedError(absl::StrCat(what, ": ", limit));
  }
  return ErrnoStatus(error, what);
}

absl::StatusOr<MemoryRegion> RegisterDmabuf(ibv_pd* pd, int fd, uint64_t offset, size_t length,
                                            uint64_t iova, unsigned int access) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  if (verbs->reg_dmabuf_mr == nullptr) {
    return absl::UnimplementedError(
        "this libibverbs cannot register device memory (ibv_reg_dmabuf_mr): rdma-core 34 or a "
        "newer one is needed");
  }
  return Own(verbs->reg_dmabuf_mr(pd, offset, length, iova, fd, static_cast<int>(access)),
             "ibv_reg_dmabuf_mr");
}

absl::StatusOr<MemoryWindow> AllocateWindow(ibv_pd* pd) {
  CISTERN_RETURN_IF_ERROR(LoadVerbs().status());
  ibv_mw* window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  if (window != nullptr) return MemoryWindow(window);
  if (errno == EOPNOTSUPP || errno == ENOSYS) {
    return absl::UnimplementedError("the RDMA device has no memory windows of type 2");
  }
  return ErrnoStatus(errno, "ibv_alloc_mw");
}

absl::StatusOr<CompletionChannel> CreateCompletionChannel(ibv_context* context) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  return Own(verbs->create_comp_channel(context), "ibv_create_comp_channel");
}

absl::StatusOr<CompletionQueue> CreateCompletionQueue(ibv_context* context, int entries,
                                                      ibv_comp_channel* channel, int vector) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  return Own(verbs->create_cq(context, entries, nullptr, channel, vector),
             absl::StrCat("ibv_create_cq of ", entries, " entries"));
}

absl::StatusOr<SharedReceiveQueue> CreateSharedReceiveQueue(ibv_pd* pd, uint32_t work_requests,
                                                            uint32_t pieces) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  ibv_srq_init_attr attributes = {};
  attributes.attr.max_wr = work_requests;
  attributes.attr.max_sge = pieces;
  return Own(verbs->create_srq(pd, &attributes),
             absl::StrCat("ibv_create_srq of ", work_requests, " work requests"));
}

absl::StatusOr<QueuePair> CreateQueuePair(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  return Own(verbs->create_qp(pd, attributes), "ibv_create_qp");
}

absl::StatusOr<CmChannel> CreateCmChannel() {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  return Own(verbs->cm.create_event_channel(), "rdma_create_event_channel");
}

absl::StatusOr<CmId> CreateCmId(rdma_event_channel* channel, void* context) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  rdma_cm_id* id = nullptr;
  const int result = verbs->cm.create_id(channel, &id, context, RDMA_PS_TCP);
  return Own(result == 0 ? id : nullptr, "rdma_create_id");
}

CmId AdoptCmId(rdma_cm_id* id) { return CmId(id); }

absl::StatusOr<CmEvent> NextCmEvent(rdma_event_channel* channel) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  rdma_cm_event* event = nullptr;
  const int result = verbs->cm.get_cm_event(channel, &event);
  return Own(result == 0 ? event : nullptr, "rdma_get_cm_event");
}

}  // namespace cistern::transport::rdma
