// What a client is made of: shared by its calls, namespaces and buffers.
#ifndef CISTERN_CLIENT_CLIENT_CORE_H_
#define CISTERN_CLIENT_CLIENT_CORE_H_

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "client/avoid_list.h"
#include "client/bad_reports.h"
#include "client/buffer_registry.h"
#include "client/client.h"
#include "client/fork_guard.h"
#include "client/fresh_puts.h"
#include "client/inflight_budget.h"
#include "client/master_call.h"
#include "client/master_link.h"
#include "client/operation.h"
#include "client/placement_cache.h"
#include "client/store_channels.h"
#include "client/store_table.h"
#include "client/verify_sample.h"
#include "transport/identity.h"
#include "transport/io_context.h"
#include "transport/rdma/host.h"
#include "transport/shm/lent_memory.h"

namespace cistern {

// See ClientStats. Relaxed: they are for people.
struct ClientCounters {
  std::atomic<uint64_t> lookups{0}, lookup_keys{0}, lookup_hits{0};
  std::atomic<uint64_t> put_chunks{0}, put_bytes{0}, put_present{0};
  std::atomic<uint64_t> get_chunks{0}, get_bytes{0}, get_misses{0};
  std::atomic<uint64_t> verify_failures{0};
  std::atomic<uint64_t> retries{0};
};

// Placements live this long in the cache, or as long as their lease: a chunk that is read often
// must be looked up now and then, or the master takes it for cold.
inline constexpr absl::Duration kPlacementLifetime = absl::Seconds(10);

// A caller's stay inside the library: as long as it lasts the channels and the I/O context are
// there.
class CallGuard {
 public:
  explicit CallGuard(OperationSet* set) : set_(set) {}
  CallGuard(CallGuard&& other) noexcept : set_(std::exchange(other.set_, nullptr)) {}
  CallGuard& operator=(CallGuard&&) = delete;
  ~CallGuard() {
    if (set_ != nullptr) set_->Leave();
  }

 private:
  OperationSet* set_;
};

// Thread-safe. Shut down by the Client; what outlives that (namespaces, buffers, finished calls)
// finds it usable no more.
class ClientCore : public std::enable_shared_from_this<ClientCore> {
 public:
  // InvalidArgument: the options. FailedPrecondition and the like: the token file.
  static absl::StatusOr<std::shared_ptr<ClientCore>> Create(const ClientOptions& options);
  ~ClientCore();

  // Every call's first step, before it takes any lock. FailedPrecondition: in a fork's child, or
  // after Shutdown (which waits for the guards' ends).
  absl::StatusOr<CallGuard> Enter();
  // Ends what is under way, closes every connection, joins the I/O thread. Idempotent. By the
  // Client that made it.
  void Shutdown();

  // Registers the memory with the RDMA devices in use. False: there is none, or (Wire::kAuto) it
  // could not be done, which the log says. ResourceExhausted names the limit of locked memory.
  absl::StatusOr<bool> AddToDevices(const BufferDesc& desc);

  // The deadline and priority of a call that starts now.
  OperationOptions CallStart(const CallOptions& call, bool async) const;
  // One call to the master; waits for it. Under a guard. A caller's call that takes several of
  // these names one `start` for all: its deadline is for the whole.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> CallMaster(transport::FrameType type, transport::FrameType reply_type,
                                   Request request, const OperationOptions& start) {
    auto operation = std::make_shared<MasterOperation<Request, Reply>>(
        env, start, master.get(), type, reply_type, std::move(request));
    operation->Launch();
    operation->Wait();
    if (!operation->status().ok()) return operation->status();
    return std::move(operation->reply());
  }

  const ClientOptions options;
  Clock& clock;
  const transport::LocalIdentity identity;
  const ForkGuard fork_guard;
  ClientCounters counters;
  BufferRegistry buffers;
  PlacementCache placements;
  AvoidList avoid;
  FreshPuts fresh;
  InflightBudget budget;
  VerifySample sample;
  OperationSet operations;
  BadReports bad_reports;
  OperationEnv env;
  // AllocateBuffer's memory; outlives the client where a buffer does.
  const std::shared_ptr<transport::LentMemory> lent = std::make_shared<transport::LentMemory>();
  // Null: none. Outlives the channels, and the buffers that it knows.
  std::shared_ptr<transport::rdma::Host> rdma;
  std::unique_ptr<StoreChannels> channels;
  std::unique_ptr<StoreTable> stores;
  std::unique_ptr<MasterLink> master;

 private:
  ClientCore(const ClientOptions& options, transport::LocalIdentity identity, Clock* clock);

  std::unique_ptr<transport::IoContext> io_;
  std::atomic<bool> closed_{false};
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_CLIENT_CORE_H_
