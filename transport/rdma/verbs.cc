#include "transport/rdma/verbs.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace cistern::transport::rdma {
namespace {

constexpr char kIbverbs[] = "libibverbs.so.1";
constexpr char kRdmacm[] = "librdmacm.so.1";

// A library's functions, by name and version; remembers the first that is missing.
class Library {
 public:
  static absl::StatusOr<Library> Open(const char* name) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return Library(name, handle);
    const char* why = dlerror();
    return absl::UnavailableError(absl::StrCat(
        "no RDMA: ", why == nullptr ? name : why,
        " (Debian's packages libibverbs1, librdmacm1 and ibverbs-providers bring it)"));
  }

  // Null where there is none.
  template <typename Function>
  void Optional(const char* function, const char* version, Function* out) const {
    *out = reinterpret_cast<Function>(dlvsym(handle_, function, version));
  }
  template <typename Function>
  void Required(const char* function, const char* version, Function* out) {
    Optional(function, version, out);
    if (*out != nullptr || !missing_.ok()) return;
    missing_ =
        absl::UnavailableError(absl::StrCat("no RDMA: ", name_, " has no ", function, " (", version,
                                            "): rdma-core 32 or a newer one is needed"));
  }
  const absl::Status& missing() const { return missing_; }

 private:
  Library(const char* name, void* handle) : name_(name), handle_(handle) {}

  std::string name_;
  void* handle_;  // Never closed: the drivers' threads and exit handlers stay.
  absl::Status missing_;
};

absl::Status LoadIbverbs(const char* name, Verbs* verbs) {
  CISTERN_ASSIGN_OR_RETURN(Library library, Library::Open(name));
#define CISTERN_LOAD(function, version) \
  library.Required("ibv_" #function, version, &verbs->function);
  CISTERN_IBVERBS_FUNCTIONS(CISTERN_LOAD)
#undef CISTERN_LOAD
  library.Required("ibv_query_port", "IBVERBS_1.1", &verbs->query_port_compat);
  library.Required("_ibv_query_gid_table", "IBVERBS_1.11", &verbs->query_gid_table);
  library.Optional("ibv_reg_dmabuf_mr", "IBVERBS_1.12", &verbs->reg_dmabuf_mr);
  CISTERN_RETURN_IF_ERROR(library.missing());

  ibv_fork_status (*is_fork_initialized)() = nullptr;
  library.Optional("ibv_is_fork_initialized", "IBVERBS_1.13", &is_fork_initialized);
  // Asked first: told to, libibverbs takes pages out of children where the kernel copies them, too.
  if (is_fork_initialized != nullptr && is_fork_initialized() == IBV_FORK_UNNEEDED) {
    verbs->fork_safety = ForkSafety::kByKernel;
  } else {
    verbs->fork_safety = verbs->fork_init() == 0 ? ForkSafety::kDontFork : ForkSafety::kUnguarded;
  }
  return absl::OkStatus();
}

absl::Status LoadRdmacm(const char* name, ConnectionManager* cm) {
  CISTERN_ASSIGN_OR_RETURN(Library library, Library::Open(name));
#define CISTERN_LOAD(function, version) library.Required("rdma_" #function, version, &cm->function);
  CISTERN_RDMACM_FUNCTIONS(CISTERN_LOAD)
#undef CISTERN_LOAD
  return library.missing();
}

struct Outcome {
  absl::Status status;
  Verbs verbs;
};

std::unique_ptr<const Outcome> Load(const char* ibverbs, const char* rdmacm) {
  auto outcome = std::make_unique<Outcome>();
  outcome->status = LoadIbverbs(ibverbs, &outcome->verbs);
  if (outcome->status.ok()) outcome->status = LoadRdmacm(rdmacm, &outcome->verbs.cm);
  return outcome;
}

void LogOutcome(const Outcome& outcome) {
  if (!outcome.status.ok()) {
    CISTERN_LOG(Info, std::string(outcome.status.message()));
  } else if (outcome.verbs.fork_safety == ForkSafety::kUnguarded) {
    CISTERN_LOG(Warning,
                "RDMA: this kernel does not copy registered memory at a fork, and memory was "
                "registered before ibv_fork_init could be called: do not fork this process");
  }
}

}  // namespace

absl::StatusOr<const Verbs*> LoadVerbs() {
  // No lock: a child forked while another thread loads must not wait for that thread. Loading twice
  // does no harm, so threads that come together both do it, and one's outcome stays.
  static std::atomic<const Outcome*> published{nullptr};
  const Outcome* found = published.load(std::memory_order_acquire);
  if (found == nullptr) {
    std::unique_ptr<const Outcome> mine = Load(kIbverbs, kRdmacm);
    if (published.compare_exchange_strong(found, mine.get(), std::memory_order_acq_rel)) {
      found = mine.release();
      LogOutcome(*found);
    }
  }
  if (!found->status.ok()) return found->status;
  return &found->verbs;
}

int QueryPort(const Verbs& verbs, ibv_context* context, uint8_t port, ibv_port_attr* out) {
  *out = {};
  const verbs_context* extended = verbs_get_ctx_op(context, query_port);
  if (extended != nullptr) return extended->query_port(context, port, out, sizeof(*out));
  // The older form fills the front of the same structure.
  return verbs.query_port_compat(context, port, reinterpret_cast<_compat_ibv_port_attr*>(out));
}

ssize_t QueryGidTable(const Verbs& verbs, ibv_context* context, ibv_gid_entry* entries,
                      size_t max_entries) {
  return verbs.query_gid_table(context, entries, max_entries, 0, sizeof(*entries));
}

ibv_mr* RegisterMemory(const Verbs& verbs, ibv_pd* pd, void* address, size_t length,
                       unsigned int access) {
  if ((access & IBV_ACCESS_OPTIONAL_RANGE) == 0) {
    return verbs.reg_mr(pd, address, length, static_cast<int>(access));
  }
  // Drops what the kernel does not know of the optional flags.
  return verbs.reg_mr_iova2(pd, address, length, reinterpret_cast<uintptr_t>(address), access);
}

namespace internal {

absl::Status TryToLoad(const char* ibverbs, const char* rdmacm) {
  return Load(ibverbs, rdmacm)->status;
}

}  // namespace internal
}  // namespace cistern::transport::rdma
