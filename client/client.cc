#include "client/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "client/client_core.h"
#include "client/namespace_impl.h"
#include "client/shared_memory.h"
#include "proto/master.pb.h"

namespace cistern {

using transport::FrameType;

std::string_view ClientVersion() { return SoftwareVersion(); }

std::string_view ChunkCodeName(ChunkCode code) {
  switch (code) {
    case ChunkCode::kOk:
      return "ok";
    case ChunkCode::kPresent:
      return "present";
    case ChunkCode::kInProgress:
      return "in progress";
    case ChunkCode::kNotFound:
      return "not found";
    case ChunkCode::kResourceExhausted:
      return "resource exhausted";
    case ChunkCode::kInvalidArgument:
      return "invalid argument";
    case ChunkCode::kDataLoss:
      return "data loss";
    case ChunkCode::kUnavailable:
      return "unavailable";
    case ChunkCode::kCancelled:
      return "cancelled";
    case ChunkCode::kDeadlineExceeded:
      return "deadline exceeded";
    case ChunkCode::kFailedPrecondition:
      return "failed precondition";
    case ChunkCode::kAborted:
      return "aborted";
    case ChunkCode::kInternal:
      return "internal";
    case ChunkCode::kUnimplemented:
      return "unimplemented";
  }
  return "unknown";
}

size_t BatchResult::CountOf(ChunkCode code) const {
  return static_cast<size_t>(std::count_if(items.begin(), items.end(),
                                           [code](const auto& item) { return item.code == code; }));
}

Buffer::Buffer() = default;
Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(memory_, other.memory_);
  std::swap(index_, other.index_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(on_devices_, other.on_devices_);
  return *this;
}

Buffer::~Buffer() {
  // In a fork's child the registry is not ours to lock.
  if (owner_ == nullptr || owner_->fork_guard.Forked()) return;
  owner_->buffers.Unregister(index_);
  if (on_devices_) owner_->rdma->RemoveMemory(data_, bytes_);
}

class ClientImpl final : public Client {
 public:
  explicit ClientImpl(std::shared_ptr<ClientCore> core) : core_(std::move(core)) {}
  ~ClientImpl() override { core_->Shutdown(); }

  // Fetches the map and the stores: proves that the master is there and takes us.
  absl::Status Greet(const CallOptions& call) {
    CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
    return core_
        ->CallMaster<wire::GetMapsRequest, wire::GetMapsReply>(
            FrameType::kGetMaps, FrameType::kGetMapsReply, wire::GetMapsRequest(),
            core_->CallStart(call, /*async=*/false))
        .status();
  }

  // A wire that was forced must lead to every store that the master named.
  absl::Status CheckWires() const {
    for (const StoreTable::Endpoint& endpoint : core_->stores->Endpoints()) {
      const absl::Status leads = core_->channels->CheckForced(endpoint);
      if (!leads.ok()) return absl::FailedPreconditionError(leads.message());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<Namespace>> OpenNamespace(std::string_view name,
                                                           std::string_view fingerprint,
                                                           const NamespaceOptions& options,
                                                           const CallOptions& call) override;
  absl::StatusOr<Buffer> RegisterBuffer(const BufferDesc& desc) override {
    return Register(desc, nullptr);
  }
  absl::StatusOr<Buffer> AllocateBuffer(uint64_t bytes) override;
  absl::StatusOr<LayoutId> RegisterLayout(const Layout& layout) override {
    CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
    return core_->buffers.RegisterLayout(layout);
  }
  absl::Status UnregisterLayout(LayoutId id) override {
    CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
    return core_->buffers.UnregisterLayout(id);
  }
  absl::Status Ping(const CallOptions& options) override {
    CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
    return core_
        ->CallMaster<wire::PingRequest, wire::PingReply>(FrameType::kPing, FrameType::kPong,
                                                         wire::PingRequest(),
                                                         core_->CallStart(options, /*async=*/false))
        .status();
  }
  ClientStats stats() const override;
  std::vector<StoreWire> wires() const override {
    return core_->Enter().ok() ? core_->channels->Wires() : std::vector<StoreWire>();
  }
  PoolId pool_id() const override {
    const absl::StatusOr<CallGuard> guard = core_->Enter();
    return guard.ok() ? core_->master->channel().peer().pool_id : PoolId();
  }

 private:
  absl::StatusOr<Buffer> Register(const BufferDesc& desc, std::shared_ptr<void> memory);

  const std::shared_ptr<ClientCore> core_;
};

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  if (options.log_sink) {
    SetLogSink(
        [sink = options.log_sink](LogLevel level, std::string_view, int, std::string_view text) {
          sink(static_cast<Severity>(level), text);
        });
  }
  CISTERN_ASSIGN_OR_RETURN(std::shared_ptr<ClientCore> core, ClientCore::Create(options));
  auto client = std::make_unique<ClientImpl>(std::move(core));
  if (!options.lazy) {
    CISTERN_RETURN_IF_ERROR(client->Greet({}));
    CISTERN_RETURN_IF_ERROR(client->CheckWires());
  }
  return client;
}

absl::StatusOr<std::shared_ptr<Namespace>> ClientImpl::OpenNamespace(
    std::string_view name, std::string_view fingerprint, const NamespaceOptions& options,
    const CallOptions& call) {
  if (name.empty() || name.size() > 256) {
    return absl::InvalidArgumentError("a namespace's name has 1 to 256 bytes");
  }
  if (fingerprint.size() > 4096) {
    return absl::InvalidArgumentError("a fingerprint has at most 4096 bytes");
  }
  if (options.part_bytes > UINT32_MAX ||
      (options.part_bytes != 0 && !PartLayout::Make(kMinChunkBytes, options.part_bytes).ok())) {
    return absl::InvalidArgumentError("part_bytes: 0, or a power of two from 4096 to 2^31");
  }
  CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
  wire::OpenNamespaceRequest request;
  request.set_name(std::string(name));
  request.set_fingerprint(std::string(fingerprint));
  *request.mutable_options() = ToWire(options);
  CISTERN_ASSIGN_OR_RETURN(const wire::OpenNamespaceReply reply,
                           (core_->CallMaster<wire::OpenNamespaceRequest, wire::OpenNamespaceReply>(
                               FrameType::kOpenNamespace, FrameType::kOpenNamespaceReply,
                               std::move(request), core_->CallStart(call, /*async=*/false))));
  CISTERN_ASSIGN_OR_RETURN(auto info, MakeOpenNamespace(name, fingerprint, reply.info()));
  return std::make_shared<NamespaceImpl>(core_, std::move(info));
}

absl::StatusOr<Buffer> ClientImpl::Register(const BufferDesc& desc, std::shared_ptr<void> memory) {
  CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
  CISTERN_ASSIGN_OR_RETURN(const uint32_t index, core_->buffers.Register(desc));
  Buffer buffer;
  buffer.owner_ = core_;
  buffer.memory_ = std::move(memory);
  buffer.index_ = index;
  buffer.data_ = desc.data;
  buffer.bytes_ = desc.bytes;
  CISTERN_ASSIGN_OR_RETURN(buffer.on_devices_, core_->AddToDevices(desc));
  return buffer;
}

absl::StatusOr<Buffer> ClientImpl::AllocateBuffer(uint64_t bytes) {
  CISTERN_ASSIGN_OR_RETURN(const CallGuard guard, core_->Enter());
  CISTERN_ASSIGN_OR_RETURN(SharedMemory allocated, SharedMemory::Allocate(bytes));
  // Stores on this host may read it where it is, until it is unmapped.
  struct Lent {
    Lent(SharedMemory m, std::shared_ptr<transport::LentMemory> t, const ForkGuard& g)
        : memory(std::move(m)), table(std::move(t)), fork_guard(g) {
      // Without it puts are copied once more.
      table->Add(memory.data(), memory.bytes(), memory.fd()).IgnoreError();
    }
    ~Lent() {
      // In a fork's child the table is not ours to lock.
      if (!fork_guard.Forked()) table->Remove(memory.data());
    }
    SharedMemory memory;
    const std::shared_ptr<transport::LentMemory> table;
    const ForkGuard fork_guard;
  };
  auto lent = std::make_shared<Lent>(std::move(allocated), core_->lent, core_->fork_guard);
  const std::shared_ptr<void> memory = lent;
  return Register({.data = lent->memory.data(), .bytes = bytes}, memory);
}

ClientStats ClientImpl::stats() const {
  const ClientCounters& c = core_->counters;
  ClientStats out;
  out.lookups = c.lookups;
  out.lookup_keys = c.lookup_keys;
  out.lookup_hits = c.lookup_hits;
  out.put_chunks = c.put_chunks;
  out.put_bytes = c.put_bytes;
  out.put_present = c.put_present;
  out.get_chunks = c.get_chunks;
  out.get_bytes = c.get_bytes;
  out.get_misses = c.get_misses;
  out.verify_failures = c.verify_failures;
  out.retries = c.retries;
  return out;
}

}  // namespace cistern
