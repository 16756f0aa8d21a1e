// libibverbs and librdmacm, loaded when first asked for.
//
// Nothing of ours links them: a host without RDMA runs everything else. What the headers declare as
// functions is called through the table below, in the very version that a linked program would get:
//
//     CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
//     ibv_pd* pd = verbs->alloc_pd(context);
//     rdma_cm_id* id;  verbs->cm.create_id(channel, &id, nullptr, RDMA_PS_TCP);
//
// What they define inline over a context's own operations needs no symbol, and is called as it is:
// ibv_post_send, ibv_post_recv, ibv_post_srq_recv, ibv_poll_cq, ibv_req_notify_cq, ibv_alloc_mw,
// ibv_dealloc_mw, ibv_inc_rkey. Inline functions and macros that do call a symbol have a wrapper
// here: QueryPort, QueryGidTable, RegisterMemory. To call the original is an error at link time.
//
// Forks. Memory that a device reads and writes must not be copied away from it when the process
// forks. A kernel from 5.12 on gives the child its copies at once, and nothing else is needed. On
// an older one libibverbs can take registered pages out of children (madvise MADV_DONTFORK, in
// whole pages: what shares a page is gone there too); LoadVerbs asks for that before any memory is
// registered, since the other choice is a parent whose device uses pages that it no longer sees.
// Objects belong to the process that made them: a child shares the kernel's side with its parent,
// so that destroying one there would destroy the parent's. handles.h sees to that.
#ifndef CISTERN_TRANSPORT_RDMA_VERBS_H_
#define CISTERN_TRANSPORT_RDMA_VERBS_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cistern::transport::rdma {

// X(name, version): ibv_NAME of libibverbs.so.1, as the header declares it.
#define CISTERN_IBVERBS_FUNCTIONS(X)     \
  X(get_device_list, "IBVERBS_1.1")      \
  X(free_device_list, "IBVERBS_1.1")     \
  X(get_device_name, "IBVERBS_1.1")      \
  X(get_device_guid, "IBVERBS_1.1")      \
  X(open_device, "IBVERBS_1.1")          \
  X(close_device, "IBVERBS_1.1")         \
  X(query_device, "IBVERBS_1.1")         \
  X(query_gid, "IBVERBS_1.1")            \
  X(query_pkey, "IBVERBS_1.1")           \
  X(get_async_event, "IBVERBS_1.1")      \
  X(ack_async_event, "IBVERBS_1.1")      \
  X(alloc_pd, "IBVERBS_1.1")             \
  X(dealloc_pd, "IBVERBS_1.1")           \
  X(reg_mr, "IBVERBS_1.1")               \
  X(reg_mr_iova2, "IBVERBS_1.8")         \
  X(dereg_mr, "IBVERBS_1.1")             \
  X(create_comp_channel, "IBVERBS_1.0")  \
  X(destroy_comp_channel, "IBVERBS_1.0") \
  X(get_cq_event, "IBVERBS_1.1")         \
  X(ack_cq_events, "IBVERBS_1.1")        \
  X(create_cq, "IBVERBS_1.1")            \
  X(resize_cq, "IBVERBS_1.1")            \
  X(destroy_cq, "IBVERBS_1.1")           \
  X(create_srq, "IBVERBS_1.1")           \
  X(modify_srq, "IBVERBS_1.1")           \
  X(query_srq, "IBVERBS_1.1")            \
  X(destroy_srq, "IBVERBS_1.1")          \
  X(create_qp, "IBVERBS_1.1")            \
  X(modify_qp, "IBVERBS_1.1")            \
  X(query_qp, "IBVERBS_1.1")             \
  X(destroy_qp, "IBVERBS_1.1")           \
  X(fork_init, "IBVERBS_1.1")            \
  X(wc_status_str, "IBVERBS_1.1")        \
  X(event_type_str, "IBVERBS_1.1")       \
  X(node_type_str, "IBVERBS_1.1")        \
  X(port_state_str, "IBVERBS_1.1")

// X(name, version): rdma_NAME of librdmacm.so.1.
#define CISTERN_RDMACM_FUNCTIONS(X)      \
  X(create_event_channel, "RDMACM_1.0")  \
  X(destroy_event_channel, "RDMACM_1.0") \
  X(create_id, "RDMACM_1.0")             \
  X(destroy_id, "RDMACM_1.0")            \
  X(migrate_id, "RDMACM_1.0")            \
  X(bind_addr, "RDMACM_1.0")             \
  X(resolve_addr, "RDMACM_1.0")          \
  X(resolve_route, "RDMACM_1.0")         \
  X(create_qp, "RDMACM_1.0")             \
  X(destroy_qp, "RDMACM_1.0")            \
  X(connect, "RDMACM_1.0")               \
  X(establish, "RDMACM_1.2")             \
  X(listen, "RDMACM_1.0")                \
  X(get_request, "RDMACM_1.0")           \
  X(accept, "RDMACM_1.0")                \
  X(reject, "RDMACM_1.0")                \
  X(notify, "RDMACM_1.0")                \
  X(disconnect, "RDMACM_1.0")            \
  X(get_cm_event, "RDMACM_1.0")          \
  X(ack_cm_event, "RDMACM_1.0")          \
  X(event_str, "RDMACM_1.0")             \
  X(get_src_port, "RDMACM_1.0")          \
  X(get_dst_port, "RDMACM_1.0")          \
  X(set_option, "RDMACM_1.0")            \
  X(init_qp_attr, "RDMACM_1.2")          \
  X(get_devices, "RDMACM_1.0")           \
  X(free_devices, "RDMACM_1.0")

// Every pointer of it is set.
struct ConnectionManager {
#define CISTERN_DECLARE(name, version) decltype(&::rdma_##name) name = nullptr;
  CISTERN_RDMACM_FUNCTIONS(CISTERN_DECLARE)
#undef CISTERN_DECLARE
};

// What a fork does to registered memory.
enum class ForkSafety {
  kByKernel,   // children get copies at once; they and the parent may do what they like
  kDontFork,   // registered pages are not there in children
  kUnguarded,  // the kernel is old and libibverbs refused: do not fork while memory is registered
};

// Every pointer of it is set, but for those said to be null.
struct Verbs {
#define CISTERN_DECLARE(name, version) decltype(&::ibv_##name) name = nullptr;
  CISTERN_IBVERBS_FUNCTIONS(CISTERN_DECLARE)
#undef CISTERN_DECLARE
  // Null before rdma-core 34: then device memory cannot be registered by a dmabuf. (Not of the
  // header, which may be older than the library.)
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                           int access) = nullptr;
  // Called by QueryPort and QueryGidTable only.
  int (*query_port_compat)(ibv_context*, uint8_t port, _compat_ibv_port_attr*) = nullptr;
  ssize_t (*query_gid_table)(ibv_context*, ibv_gid_entry*, size_t max_entries, uint32_t flags,
                             size_t entry_size) = nullptr;

  ConnectionManager cm;
  ForkSafety fork_safety = ForkSafety::kUnguarded;
};

// The table: made at the first call, by this thread, within milliseconds; the same at every later
// one, for the life of the process (neither library is ever unloaded). Unavailable, the same at
// every call, where a library or a function of it is missing: it says which, and what to install.
// One line in the log says so. Thread-safe; holds no lock that a fork could leave locked.
absl::StatusOr<const Verbs*> LoadVerbs();

// As ibv_query_port and ibv_query_gid_table. 0 or an errno value; the number of entries or a
// negative errno value.
int QueryPort(const Verbs& verbs, ibv_context* context, uint8_t port, ibv_port_attr* out);
ssize_t QueryGidTable(const Verbs& verbs, ibv_context* context, ibv_gid_entry* entries,
                      size_t max_entries);
// As ibv_reg_mr, for any access flags (IBV_ACCESS_RELAXED_ORDERING too). Null sets errno.
ibv_mr* RegisterMemory(const Verbs& verbs, ibv_pd* pd, void* address, size_t length,
                       unsigned int access);

namespace internal {
// What LoadVerbs would answer with libraries of these names. For tests.
absl::Status TryToLoad(const char* ibverbs, const char* rdmacm);
}  // namespace internal

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_VERBS_H_
