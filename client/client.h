// Cistern's client library: batch put and get of KV-cache chunks into memory the caller registered.
//
//   auto client = cistern::Client::Connect({.master_address = "10.0.0.1:7600"});
//   auto ns = (*client)->OpenNamespace("llama-70b", "rev=1;dtype=fp8;block=512", {});
//   auto buffer = (*client)->AllocateBuffer(64 << 20);
//   ... put, look up, get: see client/examples/.
//
// A good guest in the engine's process: one I/O thread (a waiting caller does its own I/O and
// verification, while the bytes are in its cache: a thread only for verifying would have to fetch
// them from there), no listening port, no signal handler, no output unless a log sink is set. Every
// class is thread-safe unless it says otherwise. No call throws. Every call ends at the latest 150
// ms after its deadline, and when it has returned (or its Pending is done) no byte lands in, or is
// read from, the caller's memory.
//
// Chunks are immutable: same key = same content. A put of a key that is there is a no-op that costs
// no bytes on the wire. A get returns only bytes that were put under (namespace, key, shard), with
// their digests checked, or a miss. Only in a namespace opened as mutable can a chunk be replaced.
#ifndef CISTERN_CLIENT_CLIENT_H_
#define CISTERN_CLIENT_CLIENT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace cistern {

// What became of one chunk of a batch. The comment is the caller's next step.
enum class ChunkCode : uint8_t {
  kOk = 0,
  kPresent = 1,            // put: it was there; nothing was sent
  kInProgress = 2,         // put: another client is putting it now, or began to 10 s ago at most
  kNotFound = 3,           // get: a miss; compute it
  kResourceExhausted = 4,  // put: the pool has no room now; back off
  kInvalidArgument = 5,    // see `length` and the batch's message
  kDataLoss = 6,           // get: bytes did not match and no other replica was good: a miss
  kUnavailable = 7,        // store or master unreachable; retry
  kCancelled = 8,
  kDeadlineExceeded = 9,
  kFailedPrecondition = 10,  // remove: leased or pinned
  kAborted = 11,             // stale ticket; look up again
  kInternal = 12,
  kUnimplemented = 13,
};
std::string_view ChunkCodeName(ChunkCode code);

struct ChunkResult {
  ChunkCode code = ChunkCode::kInternal;
  // get: this library held every byte to its digest, and the digests to the chunk's name. False
  // with kOk: the namespace's `verify` or `digest` says so, or the range cuts parts.
  bool verified = false;
  uint64_t length = 0;  // the chunk's real length where it is known
};

// `status` is OK whenever every chunk got an answer of its own, misses and refusals included. It is
// an error only when the call as a whole could not be tried (bad arguments; master unreachable);
// `items` still has one entry a chunk. `message` says more about the first failure.
struct BatchResult {
  absl::Status status;
  std::vector<ChunkResult> items;
  std::string message;
  size_t CountOf(ChunkCode code) const;
};

// A piece of the caller's registered memory. Must lie inside one registered buffer.
struct Span {
  void* data = nullptr;
  uint64_t bytes = 0;
};

// A layout: piece l of unit u is at base[l] + u * unit_stride, piece_bytes long (an engine's paged
// KV cache: l = layer, u = block). Registered once; a chunk then names {layout, unit}.
struct Layout {
  std::vector<void*> bases = {};
  uint64_t unit_stride_bytes = 0;
  uint64_t piece_bytes = 0;
  uint32_t unit_count = 0;
};
struct LayoutId {
  uint32_t value = 0;  // 0 = none
};

// Where one chunk's bytes are or go: `spans`, concatenated; or unit `unit` of `layout`.
// The spans' array must live as long as the call.
struct Memory {
  absl::Span<const Span> spans = {};
  LayoutId layout = {};
  uint32_t unit = 0;
};

struct PutItem {
  KeyId id = {};  // Namespace::Hash
  uint16_t shard = 0;
  Memory memory = {};  // the sum of its pieces is the chunk's length: 4 KiB to 1 GiB
  // The key that `id` is the hash of: needed where the namespace keeps keys, else not looked at.
  // Must live as long as the call.
  std::string_view key = {};
};

struct GetItem {
  KeyId id = {};
  uint16_t shard = 0;
  Memory memory = {};  // as long as the chunk, or the range, exactly
  // At most one of: a byte range (bytes > 0), a run of parts (part_count > 0).
  uint64_t range_offset = 0;
  // A range that cuts parts comes back with verified = false: its whole parts are checked, the rest
  // has no digest of its own (the store checks the chunk once before it first serves such a range).
  uint64_t range_bytes = 0;
  uint32_t first_part = 0;
  uint32_t part_count = 0;
  // The target may be longer than the chunk; ChunkResult::length says how much was filled.
  bool any_length = false;
};

// In which order the bytes of a batch come from each store. kByPart: part i of every chunk before
// part i + 1 of any (an engine whose chunks have a part a layer gets them layer by layer); see
// PendingGet. Items that select different runs of parts are asked for in requests of their own, and
// all that a store has of a batch at once, so that the order holds.
enum class GetOrder : uint8_t { kByChunk = 0, kByPart = 1 };
enum class Priority : uint8_t { kNormal = 0, kBackground = 1 };
// Who checks the digests of what is got. Whatever readers do not check, the store checks once after
// each of its starts before it first serves it, and every put is checked as it comes in.
//   kAlways:  each get checks every byte.
//   kSampled: each get checks one chunk in kVerifySampleOneIn, drawn anew for each chunk of each
//             get: what has gone bad in a store's memory is found after a few reads.
//   kOff:     gets check nothing.
enum class Verify : uint8_t { kAlways = 0, kSampled = 1, kOff = 2 };
inline constexpr uint32_t kVerifySampleOneIn = 16;

struct CallOptions {
  absl::Duration deadline = absl::ZeroDuration();  // 0 = ClientOptions::deadline
  Priority priority = Priority::kNormal;
};
struct PutOptions : CallOptions {
  uint64_t part_bytes = 0;  // 0 = the namespace's, else min(length, 1 MiB)
  absl::Time expiry = absl::InfiniteFuture();
  uint64_t affinity = 0;      // chunks read together share it; 0 = from the first key
  bool wait_visible = false;  // return only when other clients' lookups see it (tests)
  // Mutable namespaces: chunks that are there get the new bytes (of any length) in one step. Once
  // that is answered kOk no get that starts later brings the old ones; a get at the same time
  // brings either, whole. Of several replaces at a time the last to commit stays. Whatever else the
  // answer is, a chunk has the old bytes or (when a store was lost before it answered) the new
  // ones. A key twice in one batch is refused. In an immutable namespace: FailedPrecondition.
  bool replace = false;
};
struct GetOptions : CallOptions {
  GetOrder order = GetOrder::kByChunk;
};
struct LookupOptions : CallOptions {
  uint16_t shard_first = 0;
  uint16_t shard_count = 1;  // a key counts only if all its shards are there
  bool sparse = false;       // lease every present key, not only the leading run
  bool lease = true;
  absl::Duration lease_time = absl::ZeroDuration();  // 0 = the pool's default; capped
};
struct RemoveOptions : CallOptions {
  uint16_t shard_first = 0;
  uint16_t shard_count = 1;
  bool force = false;  // leased and pinned ones too
};

struct ListOptions : CallOptions {
  // Where to go on: KeyPage::next of the page before; empty = from the start.
  std::string cursor = {};
  // About so many a page: a store's share comes in stretches and is not cut. At least 1.
  size_t max_keys = 1'000;
};

// A chunk as a listing shows it.
struct ListedKey {
  std::string key;
  KeyId id = {};
  uint16_t shard = 0;
  uint64_t length = 0;
};

// In no order. A chunk that is there during the whole listing is in one of its pages, if its store
// answers; one that is replaced or put meanwhile may be in two.
struct KeyPage {
  std::vector<ListedKey> keys;
  std::string next;  // empty: this was the last page. A page may be empty before that
  // Stores that did not answer in this page: what they hold is not listed.
  std::vector<StoreId> unreachable;
};

// What a removal by pattern came to, chunk by chunk.
struct MatchRemoval {
  uint64_t matched = 0;
  uint64_t removed = 0;
  uint64_t refused = 0;  // leased or pinned and not forced
  uint64_t failed = 0;   // not answered in time, or its store was lost
  std::vector<StoreId> unreachable;
};

// What a lookup found. A value; Serialize/Namespace::Adopt carry it to another process, which can
// then get without asking the master.
struct LookupResult {
  static constexpr uint16_t kNoStore = 0xFFFF;

  uint32_t leading_run = 0;   // keys present from the front
  std::vector<bool> present;  // per key
  // One for each 32,768 chunks looked up, and for each piece of the run that this client had only
  // just put; empty = none (nothing there, or none asked for).
  std::vector<LeaseId> leases;
  absl::Duration lease_time = absl::ZeroDuration();  // of the shortest; from the answer's making
  bool lease_shortened = false;                      // the pool's share allowed less than was asked
  uint16_t shard_first = 0;
  uint16_t shard_count = 1;
  std::vector<KeyId> ids;
  // Per chunk (key 0 shard_first, key 0 shard_first + 1, ...): where the first replica is, as a
  // position in store_ids; kNoStore = absent.
  std::vector<uint16_t> stores;
  std::vector<StoreId> store_ids;

  NamespaceId ns;

  // The ticket: the id and two bytes a chunk.
  std::string Serialize() const;
};

struct NamespaceOptions {
  Verify verify = Verify::kAlways;
  absl::Duration ttl = absl::ZeroDuration();  // 0 = chunks do not expire
  uint64_t part_bytes = 0;
  // False: puts make no digests. Then nobody, store or reader, can tell whether a bit has flipped
  // in memory or on the way: a get brings as many bytes as were put under the key, or a miss, and
  // never says `verified`; a range or a run of parts is as good as the whole.
  bool digest = true;
  // For layers that overwrite keys: PutOptions::replace is allowed. A chunk has one replica, and
  // gets always ask the master where it is.
  bool mutable_chunks = false;
  // The caller's key is kept beside each chunk (PutItem::key), so that ListKeys and RemoveMatching
  // find chunks by it. Costs its length, rounded up with the chunk's to 4 KiB.
  bool keep_keys = false;
};

enum class MemoryKind : uint8_t { kHost = 0, kCuda = 1, kDmabuf = 2 };
struct BufferDesc {
  void* data = nullptr;
  uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kHost;  // others answer Unimplemented where no wire serves them
  int device = -1;
  int fd = -1;  // kDmabuf
  uint64_t fd_offset = 0;
  bool remote_read = true;   // puts may read from it
  bool remote_write = true;  // gets may write into it
};

class ClientCore;

// A registered buffer. Unregisters when destroyed, which waits for calls in flight (within their
// deadlines); later calls that name its memory are refused with InvalidArgument. Movable.
class Buffer {
 public:
  Buffer();
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();
  void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class ClientImpl;
  std::shared_ptr<ClientCore> owner_;
  std::shared_ptr<void> memory_;  // AllocateBuffer's: freed with the buffer
  uint32_t index_ = 0;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
  bool on_devices_ = false;  // registered with the RDMA devices
};

// An asynchronous call. Destroying it cancels the call and waits for its quiet end.
template <typename Result>
class Pending {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool Done() = 0;
    virtual bool Wait(absl::Duration timeout) = 0;
    virtual int EventFd() = 0;
    virtual void Cancel() = 0;
    virtual Result Take() = 0;
  };
  Pending() = default;
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool valid() const { return state_ != nullptr; }
  // True once the result is there; never blocks.
  bool Done() const { return state_->Done(); }
  // The caller's thread does I/O meanwhile. False when `timeout` passed first.
  bool Wait(absl::Duration timeout = absl::InfiniteDuration()) const {
    return state_->Wait(timeout);
  }
  // Becomes readable when done; owned by the call. -1 when the system has no more descriptors.
  int EventFd() const { return state_->EventFd(); }
  // Asks the call to end early; it still has to be waited for.
  void Cancel() const { state_->Cancel(); }
  // The result; waits for it. Once.
  Result Take() { return state_->Take(); }

 private:
  std::shared_ptr<State> state_;
};

// A chunk of a get that will not come: its item's position, why, and how many of its parts (from
// the front) are in place all the same.
struct MissedChunk {
  uint32_t item = 0;
  ChunkCode code = ChunkCode::kInternal;
  uint32_t parts_done = 0;
};

enum class PartWait : uint8_t {
  kReady,    // every chunk of the batch that has such a part has it in place
  kMissing,  // so has every chunk but those of MissedSoFar() whose parts_done is not beyond it
  kTimeout,  // not yet
};

// An asynchronous get, and how far it has come. With GetOrder::kByPart an engine starts on the
// first layers while the others still arrive:
//
//   cistern::GetOptions options;
//   options.order = cistern::GetOrder::kByPart;
//   cistern::PendingGet get = ns->BatchGetAsync(items, options);
//   for (uint32_t layer = 0; layer < layers; ++layer) {
//     if (get.WaitPart(layer) == cistern::PartWait::kMissing) recompute(get.MissedSoFar());
//     ...
//   }
//   cistern::BatchResult result = get.Take();
//
// Parts are counted by their number in the chunk. A part that a chunk does not have, or that its
// item does not ask for, is in place from the beginning. In place means: in the caller's memory,
// and held to its digest wherever the get checks digests at all (kSampled, kOff, no digests, and
// the cut parts of a range: has arrived). What is in place once stays so, whatever becomes of the
// rest: a chunk that is tried again at another replica goes on behind it, and only if that one's
// chunk is the same; it is never got a second time, but for the cut last part of a range. A chunk
// that has failed holds the others up no longer. By chunk, every part is in place only at the end.
class PendingGet : public Pending<BatchResult> {
 public:
  static constexpr uint32_t kAllParts = 0xFFFFFFFF;

  class State : public Pending<BatchResult>::State {
   public:
    virtual uint32_t PartsDone() = 0;
    virtual PartWait WaitPart(uint32_t part, absl::Duration timeout) = 0;
    virtual std::vector<MissedChunk> MissedSoFar() = 0;
    virtual int PartEventFd() = 0;
  };
  PendingGet() = default;
  explicit PendingGet(std::shared_ptr<State> state)
      : Pending<BatchResult>(state), parts_(std::move(state)) {}

  // Parts before this number are in place in every chunk that has not failed; kAllParts once that
  // is so of all. Only grows. Never blocks.
  uint32_t PartsDone() const { return parts_->PartsDone(); }
  // Waits until PartsDone() > part; the caller's thread does I/O meanwhile. Ends at the latest with
  // the call itself. Any number of threads.
  PartWait WaitPart(uint32_t part, absl::Duration timeout = absl::InfiniteDuration()) const {
    return parts_->WaitPart(part, timeout);
  }
  // The chunks that have failed for good, in the order in which that was known: misses mostly
  // before the first bytes. None is in it that comes after all, but for one that arrived unchecked
  // (see above) and that its store then took back.
  std::vector<MissedChunk> MissedSoFar() const { return parts_->MissedSoFar(); }
  // An eventfd that becomes readable whenever PartsDone() or MissedSoFar() has grown: read() it (8
  // bytes), then ask. Owned by the call. -1 when the system has no more descriptors.
  int PartEventFd() const { return parts_->PartEventFd(); }

 private:
  std::shared_ptr<State> parts_;
};

// A namespace: chunks whose bytes are interchangeable. Cheap to copy the pointer; outlives nothing:
// keep the Client alive.
class Namespace {
 public:
  virtual ~Namespace() = default;
  virtual const NamespaceId& id() const = 0;
  virtual const std::string& name() const = 0;
  // Those in force: the first opener's.
  virtual const NamespaceOptions& options() const = 0;

  // A caller's key (1 byte to 4 KiB) as an id: a hash, no call. InvalidArgument beyond that.
  virtual absl::StatusOr<KeyId> Hash(std::string_view key) const = 0;
  virtual absl::Status HashMany(absl::Span<const std::string_view> keys,
                                std::vector<KeyId>* out) const = 0;

  // Any number of keys: the library splits. What this client has put is seen at once: the call
  // takes some milliseconds where the master has not heard of it yet. Errors: InvalidArgument,
  // Unavailable and DeadlineExceeded (both name the master's address).
  virtual absl::StatusOr<LookupResult> Lookup(absl::Span<const KeyId> ids,
                                              const LookupOptions& options = {}) = 0;
  // Takes no lease and marks nothing.
  virtual absl::StatusOr<std::vector<bool>> Exists(absl::Span<const KeyId> ids,
                                                   const LookupOptions& options = {}) = 0;
  // Makes another process's lookup usable here, without a call. InvalidArgument: not a ticket of
  // this namespace.
  virtual absl::StatusOr<LookupResult> Adopt(std::string_view ticket) = 0;
  // Ends a lookup's leases early (all of them). Ones that ended already are no error.
  virtual absl::Status Release(absl::Span<const LeaseId> leases,
                               const CallOptions& options = {}) = 0;

  virtual BatchResult BatchPut(absl::Span<const PutItem> items, const PutOptions& options = {}) = 0;
  virtual BatchResult BatchGet(absl::Span<const GetItem> items, const GetOptions& options = {}) = 0;
  // Warms the placement cache. With storage tiers it will promote.
  virtual absl::Status Prefetch(absl::Span<const KeyId> ids, const LookupOptions& options = {}) = 0;
  // Returns when the stores have freed them: kOk, kNotFound, kFailedPrecondition (leased, pinned).
  virtual BatchResult Remove(absl::Span<const KeyId> ids, const RemoveOptions& options = {}) = 0;
  // Every chunk of the namespace, each put that was acknowledged before included. The number
  // removed; what is leased or pinned stays unless forced. DeadlineExceeded: not all stores have
  // answered. Unavailable: chunks are in stores that are away, and still there.
  virtual absl::StatusOr<uint64_t> RemoveAll(const RemoveOptions& options = {}) = 0;

  // For namespaces that keep keys, else FailedPrecondition: one page of the chunks whose key
  // matches `pattern` (RE2 syntax over bytes, found anywhere in the key: anchor with ^ and $; "" =
  // all; 1,024 bytes at most, and 2,000 of RE2's instructions: of `(abc){1000}` there are 3,000),
  // asked of the stores themselves. InvalidArgument: the pattern, with the reason.
  // ResourceExhausted: matching it takes a store too long; use a simpler one. Aborted: a store has
  // restarted since the page before: list from the start.
  virtual absl::StatusOr<KeyPage> ListKeys(std::string_view pattern,
                                           const ListOptions& options = {}) = 0;
  // Removes what ListKeys finds, page by page, whatever its shard (options.shard_* are not looked
  // at). Every put with a matching key that was acknowledged before is among it. What was removed
  // before an error stays removed.
  virtual absl::StatusOr<MatchRemoval> RemoveMatching(std::string_view pattern,
                                                      const RemoveOptions& options = {}) = 0;

  // Asynchronous forms: `items`, their spans and the memory must stay until the call is done.
  virtual Pending<absl::StatusOr<LookupResult>> LookupAsync(absl::Span<const KeyId> ids,
                                                            const LookupOptions& options = {}) = 0;
  virtual Pending<BatchResult> BatchPutAsync(absl::Span<const PutItem> items,
                                             const PutOptions& options = {}) = 0;
  virtual PendingGet BatchGetAsync(absl::Span<const GetItem> items,
                                   const GetOptions& options = {}) = 0;
};

enum class Wire : uint8_t { kAuto = 0, kTcp = 1, kShm = 2, kRdma = 3 };

// The RDMA devices of this process, and how its queue pairs are made; docs/rdma.md says when to
// change what. On a host without any they say nothing.
struct RdmaOptions {
  bool enabled = true;
  std::string devices = {};  // "mlx5_0, mlx5_1:1"; "" = every one whose link is up
  int gid_index = -1;        // -1 = chosen
  uint32_t traffic_class = 0;
  uint32_t service_level = 0;
  uint32_t mtu_bytes = 0;  // 0 = the port's
  uint32_t queue_depth = 128;
  uint32_t max_inline_bytes = 128;
  uint32_t retry_count = 6;
  absl::Duration timeout = absl::Milliseconds(67);
};
enum class Severity : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

struct ClientOptions {
  std::string master_address = "127.0.0.1:7600";
  std::string pool_token_file = {};  // mode 0600; "" = no token
  bool lazy = false;                 // Connect makes no connection and cannot fail for want of one
  absl::Duration deadline = absl::Seconds(5);  // of calls that name none
  // How stores are reached. kAuto: shared memory where a store is on this host and lets us in, else
  // RDMA where both ends have it (tcp until such a connection stands), else tcp. Another: only so;
  // a store that cannot be reached by it is unavailable.
  Wire wire = Wire::kAuto;
  RdmaOptions rdma = {};
  int connections_per_store = 2;
  uint64_t max_inflight_bytes = uint64_t{256} << 20;  // asked for at once from all stores (incast)
  // Lines of the library; any thread, one at a time.
  std::function<void(Severity, std::string_view)> log_sink = {};
};

// What the library counted since Connect.
struct ClientStats {
  uint64_t lookups = 0, lookup_keys = 0, lookup_hits = 0;
  uint64_t put_chunks = 0, put_bytes = 0, put_present = 0;
  uint64_t get_chunks = 0, get_bytes = 0, get_misses = 0;
  uint64_t verify_failures = 0;
  uint64_t retries = 0;
};

// How a store is reached.
struct StoreWire {
  StoreId store;
  std::string address;
  std::string wire;  // "shm", "rdma", "tcp"
  std::string why;   // in words: also why not by a better one
};

class Client {
 public:
  // Waits for the master within options.deadline unless `lazy`. Unavailable or DeadlineExceeded
  // name the address; PermissionDenied: the token is wrong; InvalidArgument: the options are;
  // FailedPrecondition: the wire asked for does not lead to a store of the pool, or is RDMA where
  // this host has none.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  // Cancels what is pending and waits for its quiet end.
  virtual ~Client() = default;

  // Opens (and creates at first) a namespace. The fingerprint names everything that makes KV bytes
  // interchangeable: weights revision, dtype, layout version, block tokens, parallel degree.
  // FailedPrecondition: the name is in use with another fingerprint (the message shows both).
  virtual absl::StatusOr<std::shared_ptr<Namespace>> OpenNamespace(
      std::string_view name, std::string_view fingerprint, const NamespaceOptions& options = {},
      const CallOptions& call = {}) = 0;

  // Overlapping registrations are allowed; a span must lie within one of them. Where RDMA is used
  // the memory is registered with every device, which locks it; ResourceExhausted names the limit
  // (ulimit -l) where that is too low for it. With Wire::kAuto a warning in the log says so, and
  // RDMA copies what lies there.
  virtual absl::StatusOr<Buffer> RegisterBuffer(const BufferDesc& desc) = 0;
  // Memory that every wire serves best (shared memory, page-aligned, zeroed).
  virtual absl::StatusOr<Buffer> AllocateBuffer(uint64_t bytes) = 0;
  // Every piece of every unit must lie within registered buffers.
  virtual absl::StatusOr<LayoutId> RegisterLayout(const Layout& layout) = 0;
  virtual absl::Status UnregisterLayout(LayoutId id) = 0;

  virtual absl::Status Ping(const CallOptions& options = {}) = 0;
  virtual ClientStats stats() const = 0;
  // Of the stores that were called so far.
  virtual std::vector<StoreWire> wires() const = 0;
  virtual PoolId pool_id() const = 0;
};

// "0.1.0"
std::string_view ClientVersion();

}  // namespace cistern

#endif  // CISTERN_CLIENT_CLIENT_H_
