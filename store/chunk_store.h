// Everything a store knows about the chunks in its DRAM, as one object that the daemon drives.
//
// Put:  1. BeginPut reserves a header and an extent per absent chunk and gives a PutSlot
//       2. the caller receives payload and part digests into the slot's spans, checking as it goes
//       3. Commit: part table and header complete -> commit word -> table -> record
//       A slot destroyed before step 3 gives everything back.
// Get:  Acquire gives a ChunkRef: the bytes stay in place until it is destroyed, whatever is
//       removed meanwhile.
#ifndef CISTERN_STORE_CHUNK_STORE_H_
#define CISTERN_STORE_CHUNK_STORE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/digest.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "proto/store.pb.h"
#include "proto/types.pb.h"
#include "store/chunk_table.h"
#include "store/expiry_index.h"
#include "store/extent_allocator.h"
#include "store/header_table.h"
#include "store/namespace_record.h"
#include "store/record_log.h"
#include "store/segment.h"
#include "store/version_ceiling.h"

namespace cistern::store {

class ChunkStore;

// Position in the store's list of namespaces. One without chunks, open binds and unacknowledged
// records may be given to another namespace when all are taken: whoever keeps an index keeps the
// namespace bound.
struct NamespaceIndex : StrongInt<struct NamespaceIndexTag, uint32_t> {
  static constexpr uint32_t kMaxCount = 16'384;
  using StrongInt::StrongInt;
};

// A reserved place for one chunk. Move-only; one thread at a time. Destroyed uncommitted it gives
// header and extent back (Abort). Must not outlive its ChunkStore.
class PutSlot {
 public:
  PutSlot() = default;
  PutSlot(PutSlot&& other) noexcept { *this = std::move(other); }
  PutSlot& operator=(PutSlot&& other) noexcept;
  ~PutSlot() { Abort(); }

  explicit operator bool() const { return store_ != nullptr; }
  const ChunkName& name() const { return name_; }
  const PartLayout& layout() const { return layout_; }
  // `layout().length` bytes to fill.
  absl::Span<char> payload() const { return {payload_, layout_.length}; }
  // `layout().count` digests to fill, unless the digest kind is NONE.
  absl::Span<PartDigest> part_table() {
    return {layout_.count > 1 ? part_table_ : &single_part_digest_, layout_.count};
  }
  absl::Span<const PartDigest> part_table() const {
    return {layout_.count > 1 ? part_table_ : &single_part_digest_, layout_.count};
  }
  uint64_t extent_bytes() const { return extent_.bytes; }
  // Idempotent.
  void Abort();

 private:
  friend class ChunkStore;
  void KeepKey(std::string_view key);

  ChunkStore* store_ = nullptr;
  uint32_t entry_ = ChunkTable::kNone;
  NamespaceIndex namespace_index_;
  ChunkName name_;
  PartLayout layout_;
  Extent extent_;
  uint64_t expiry_unix_ms_ = 0;
  uint64_t mutation_ = 0;
  bool replace_ = false;
  char* payload_ = nullptr;
  char* kept_key_ = nullptr;  // null: none is kept
  PartDigest* part_table_ = nullptr;
  PartDigest single_part_digest_ = 0;
};

// A committed chunk held in place. Move-only. Must not outlive its ChunkStore; destroying it takes
// the store's mutex.
class ChunkRef {
 public:
  ChunkRef() = default;
  ChunkRef(ChunkRef&& other) noexcept { *this = std::move(other); }
  ChunkRef& operator=(ChunkRef&& other) noexcept;
  ~ChunkRef() { Release(); }

  explicit operator bool() const { return store_ != nullptr; }
  const ChunkName& name() const { return name_; }
  const PartLayout& layout() const { return layout_; }
  uint64_t length() const { return layout_.length; }
  absl::Span<const char> payload() const { return {payload_, layout_.length}; }
  // Empty when digest_kind() is DIGEST_NONE.
  absl::Span<const PartDigest> part_digests() const {
    if (digest_kind_ == wire::DIGEST_NONE) return {};
    return {layout_.count > 1 ? part_table_ : &single_part_digest_, layout_.count};
  }
  uint64_t root() const { return root_; }
  Version version() const { return version_; }
  wire::DigestKind digest_kind() const { return digest_kind_; }
  // The store itself has checked the bytes against their digest.
  bool verified() const { return verified_; }
  uint64_t extent_bytes() const { return extent_bytes_; }
  void Release();

 private:
  friend class ChunkStore;
  ChunkStore* store_ = nullptr;
  uint32_t entry_ = ChunkTable::kNone;
  ChunkName name_;
  PartLayout layout_;
  uint64_t extent_bytes_ = 0;
  const char* payload_ = nullptr;
  const PartDigest* part_table_ = nullptr;
  PartDigest single_part_digest_ = 0;
  uint64_t root_ = 0;
  Version version_;
  wire::DigestKind digest_kind_ = wire::DIGEST_NONE;
  bool verified_ = false;
};

// One chunk of a put batch.
struct PutItem {
  ChunkName name;
  uint64_t length = 0;
  uint32_t index = 0;         // in the request: what `duplicate_of` refers to
  std::string_view key = {};  // of namespaces that keep keys; must live through BeginPut
};

struct PutOptions {
  uint64_t batch = 0;           // from NewBatch(); the same when a batch is tried again
  uint64_t part_bytes = 0;      // 0 = the namespace's, else the default
  uint64_t expiry_unix_ms = 0;  // 0 = none; never later than now + the namespace's ttl
  bool replace = false;         // mutable namespaces only
  uint64_t mutation = 0;        // kept with the chunk in mutable namespaces
};

// Why a chunk found no place.
enum class PutRefusal : uint8_t {
  kNone = 0,
  kNoRoom = 1,    // no free extent is as large
  kHeaders = 2,   // headers ran out before bytes
  kInflight = 3,  // the bound on uncommitted bytes
  kTooLarge = 4,  // larger than any segment
};
inline constexpr int kPutRefusals = 5;
const char* PutRefusalName(PutRefusal refusal);

// CHUNK_OK: `slot` is to be filled, or `duplicate_of` says which item of the same batch has it.
// CHUNK_PRESENT, CHUNK_IN_PROGRESS (someone else is putting it; a replace never hears that: of
// several at once the last to commit stays).
// CHUNK_RESOURCE_EXHAUSTED: no room; see RoomNeeded. CHUNK_INVALID_ARGUMENT: length, parts or key.
// CHUNK_FAILED_PRECONDITION: the name is held by another namespace, or replace where chunks are
// immutable.
struct PutAnswer {
  static constexpr uint32_t kNoDuplicate = 0xFFFFFFFF;
  wire::ChunkStatus status = wire::CHUNK_INTERNAL;
  PutRefusal refusal = PutRefusal::kNone;
  uint32_t duplicate_of = kNoDuplicate;
  PutSlot slot;
};

// What stands in the way of the items answered CHUNK_RESOURCE_EXHAUSTED.
struct RoomNeeded {
  uint64_t bytes = 0;         // sum of the extents that found no room: ask for these
  uint64_t extent_bytes = 0;  // the largest of them: no free extent is as large
  bool headers = false;       // headers ran out before bytes: evict any chunk
  bool inflight = false;      // only the bound on uncommitted bytes: wait for other puts to end
  bool any() const { return bytes != 0 || headers || inflight; }
};

struct CommitOptions {
  // NONE: the slot's part table is ignored. PRODUCER, STORE: it is filled by the caller, who has
  // compared it with the bytes or asks for `recheck`.
  wire::DigestKind digest_kind = wire::DIGEST_PRODUCER;
  bool recheck = false;  // hash the payload now; a mismatch is DataLoss
  bool checked = false;  // the caller compared them: the header says verified
};

struct EvictResult {
  uint64_t chunks = 0;
  uint64_t bytes = 0;      // of their extents
  bool satisfied = false;  // the bytes were freed, and a free extent is as large as was asked
};

struct RecoveryReport {
  uint64_t recovered_chunks = 0;
  uint64_t recovered_bytes = 0;
  uint64_t writing = 0;      // dropped: puts that never ended
  uint64_t damaged = 0;      // dropped: CRC or a field out of range
  uint64_t overlapping = 0;  // dropped: extents shared with a higher version
  uint64_t duplicate = 0;    // dropped: the chunk exists at a higher version
  uint64_t orphaned = 0;     // dropped: the namespace is unknown or was removed
  uint64_t expired = 0;
};

// A chunk of a namespace that keeps keys.
struct KeptKey {
  ChunkName name;
  uint64_t length = 0;
  std::string key;
};

struct NamespaceUsage {
  NamespaceRecord record;
  uint64_t chunk_count = 0;
  uint64_t payload_bytes = 0;
};

// The same in numbers, for metrics.
struct NamespaceNumbers {
  std::string name;
  uint64_t chunk_count = 0;
  uint64_t payload_bytes = 0;
};

// What became of the chunks of puts, once each, however often they were tried.
struct PutOutcomes {
  std::array<uint64_t, kPutRefusals> refused_by = {};  // index = PutRefusal
  uint64_t corrupt = 0;  // the bytes did not match the digests that came with them
};

struct ChunkStoreOptions {
  uint64_t max_inflight_bytes = uint64_t{1} << 30;
  size_t record_log_records = 1'000'000;
  double reserve_share = 0.01;                      // below this share free the store wants room
  absl::Duration spare_recent = absl::Seconds(10);  // self-eviction spares what was read since
  uint64_t hash_seed = 0;                           // random per process
};

// Memory per chunk beside its 128 bytes of header in the segment: 60 to 64 bytes in ChunkTable and
// some 16 in the map of neighbours.
//
// Promises the invariants of the segment: a chunk is readable only when committed with all its
// bytes; an extent is allocatable only when its header is freed and its last reader gone; used
// bytes are the sum of the extents handed out.
//
// Thread-safe: one mutex, held for table work only (never I/O, hashing, copying of payload, or a
// callback). Times are passed in. Owns segments and versions.
class ChunkStore {
 public:
  // Recovers what the segments hold.
  static absl::StatusOr<std::unique_ptr<ChunkStore>> Create(
      const ChunkStoreOptions& options, std::vector<std::unique_ptr<Segment>> segments,
      std::unique_ptr<VersionCeiling> versions, absl::Time now);
  // Precondition: no PutSlot or ChunkRef is left.
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  const RecoveryReport& recovery() const { return recovery_; }
  const StoreId& store_id() const { return versions_->store_id(); }
  RecordLog& log() { return log_; }

  // --- Namespaces ---
  // The index of the namespace, entered if it is new; its options are those of the first opener.
  // It stays this namespace's until as many UnbindNamespace.
  // InvalidArgument: see CheckNamespaceRecord. ResourceExhausted: kMaxCount are in use.
  absl::StatusOr<NamespaceIndex> BindNamespace(const NamespaceRecord& record);
  void UnbindNamespace(NamespaceIndex ns);
  std::optional<NamespaceIndex> FindNamespace(const NamespaceId& id) const;
  // The options in force. Precondition: `ns` came from BindNamespace.
  wire::NamespaceOptions NamespaceOptionsOf(NamespaceIndex ns) const;
  NamespaceId NamespaceIdOf(NamespaceIndex ns) const;
  // A namespace as a session tells of it. `serial` never comes twice: an index that has changed
  // hands has another one.
  struct NamespaceEntry {
    uint32_t index = 0;
    uint64_t serial = 0;
    wire::NamespaceInfo info;
  };
  NamespaceEntry NamespaceAt(NamespaceIndex ns) const;
  uint64_t NamespaceSerial(NamespaceIndex ns) const;
  // Those that have chunks.
  std::vector<NamespaceEntry> NamespacesWithChunks() const;
  std::vector<NamespaceUsage> NamespaceUsages() const;
  // One slice over the namespaces from `*next` on, in the order in which they came: appends to
  // `out` while it has fewer than `max`, adds the rest to `others`. True: there are more.
  bool NamespaceNumbersFrom(uint32_t* next, size_t max, NamespaceNumbers* others,
                            std::vector<NamespaceNumbers>* out) const;
  uint32_t namespace_count() const;
  // Removes every chunk of the namespace for good: durably (a restart finds none), in slices.
  // Returns how many. Puts under way that commit later are not part of it. When nothing is left the
  // namespace may be opened with other options.
  uint64_t DropNamespace(const NamespaceId& id);

  // --- Segments (chunk_store_segments.cc). One caller at a time. ---
  static constexpr size_t kMaxSegments = 64;
  // Puts go there from now on. InvalidArgument: it was attached, not made new: what it held may
  // have been removed for good meanwhile. FailedPrecondition: one of this id is here.
  // ResourceExhausted: too many segments or headers.
  absl::Status AddSegment(std::unique_ptr<Segment> segment);
  // No put goes there any more. NotFound; FailedPrecondition: it is the last that takes puts.
  // OK when it is being unmounted already.
  absl::Status BeginUnmount(const SegmentId& id);
  // Puts go there again. NotFound.
  absl::Status CancelUnmount(const SegmentId& id);
  struct Drained {
    uint64_t chunks = 0;  // evicted by this call, and the bytes of their extents
    uint64_t bytes = 0;
    uint32_t held = 0;       // headers still in use: not looked at yet, being read or being written
    bool pass_done = false;  // every chunk was looked at: wait a little before the next call
  };
  // Evicts (CAUSE_UNMOUNTED) some of the chunks of a segment that is being unmounted: one short
  // hold of the mutex. What is being read goes when its last reader does, what is being written
  // once it is committed: call again while `held` is not 0. NotFound; FailedPrecondition: it is not
  // being unmounted.
  absl::StatusOr<Drained> DrainSlice(const SegmentId& id);
  // Takes the segment out; the memory is the caller's to give back. FailedPrecondition: something
  // is held there, or it is not being unmounted. NotFound.
  absl::StatusOr<std::unique_ptr<Segment>> TakeSegment(const SegmentId& id);

  // --- Puts ---
  uint64_t NewBatch();
  // Answers item by item; answers.size() == items.size(), their slots empty. Never evicts by
  // itself.
  RoomNeeded BeginPut(NamespaceIndex ns, absl::Span<const PutItem> items, const PutOptions& options,
                      absl::Time now, absl::Span<PutAnswer> answers);
  // Commits one chunk. DataLoss: recheck failed; Unavailable: no version could be had (the disk of
  // the data folder is full); AlreadyExists: not a replace, and a replace was quicker. The slot is
  // given back in each case.
  absl::StatusOr<Version> Commit(PutSlot slot, const CommitOptions& options, absl::Time now);
  // Commits a whole batch in one step: the records and the order of arrival get the last chunk
  // first, so that a suffix is older than its prefix. Empty slots are skipped, and so are those for
  // which Commit says AlreadyExists (version 0). recheck is not possible here.
  absl::Status CommitBatch(absl::Span<PutSlot> slots, const CommitOptions& options, absl::Time now,
                           absl::Span<Version> versions);

  // Counts what a put is answered with: once a put, when it is.
  void CountAnswers(absl::Span<const PutAnswer> answers);
  PutOutcomes put_outcomes() const;

  // --- Gets ---
  // Empty where the chunk is absent, expired, or of another namespace. A chunk whose header has
  // rotted (its CRC, or what is known of it otherwise, does not fit) is dropped and absent.
  ChunkRef Acquire(NamespaceIndex ns, const ChunkName& name, absl::Time now);
  // refs.size() == names.size(). Returns how many were found.
  size_t AcquireMany(NamespaceIndex ns, absl::Span<const ChunkName> names, absl::Time now,
                     absl::Span<ChunkRef> refs);
  // Holds what is there of `names` against eviction, without a touch or a count: for a replace that
  // needs room must not take it from what it replaces.
  std::vector<ChunkRef> Hold(NamespaceIndex ns, absl::Span<const ChunkName> names);
  // Present, without a reference, a touch or a count.
  bool Contains(NamespaceIndex ns, const ChunkName& name, absl::Time now) const;
  // The length of the chunk at that version (0 = whichever it is); 0: it is not here.
  uint64_t LengthOf(NamespaceIndex ns, const ChunkName& name, Version version) const;
  // Hashes the chunk (outside the mutex) and marks it verified; a mismatch drops it: DataLoss. OK
  // without hashing when it has no digest.
  absl::Status Verify(const ChunkRef& ref);
  // The same, and nothing where another call has verified the chunk since `ref` was taken.
  absl::Status VerifyOnce(const ChunkRef& ref);

  // --- Removal ---
  // CHUNK_OK: gone. CHUNK_NOT_FOUND: not here, another namespace, or another version (version 0 =
  // whichever it is).
  wire::ChunkStatus Remove(NamespaceIndex ns, const ChunkName& name, Version version,
                           wire::Cause cause);
  // For the master's command: by name and version alone.
  bool Evict(const ChunkName& name, Version version, wire::Cause cause);
  // A reader found bad bytes: hashes again. CHUNK_OK: sound (or without digest); CHUNK_DATA_LOSS:
  // dropped; CHUNK_NOT_FOUND: gone already.
  wire::ChunkStatus ReportBad(NamespaceIndex ns, const ChunkName& name, Version version);
  // Removes up to `max` chunks that are due; returns how many it looked at (call again while that
  // is `max`).
  size_t ExpireDue(absl::Time now, size_t max);
  // Expiry is a matter of the wall clock, which alone means something after a restart and on
  // another host: a clock set forward expires at once what would have become due, one set back only
  // delays. When ExpireDue has something to do; InfiniteFuture = nothing.
  absl::Time NextExpiry() const;
  // Frees at least `bytes`, oldest first, each time with as many of the victim's neighbours as make
  // a hole of `extent_bytes` (0 = none): without them a large extent would cost far more than its
  // size. What was read since it was last looked at goes back to the young end once; what was read
  // in the last `spare_recent`, or is being read, stays.
  EvictResult EvictSelf(uint64_t bytes, uint64_t extent_bytes, wire::Cause cause, absl::Time now);
  // Bytes by which free space is below the reserve; 0 = there is enough.
  uint64_t ReserveDeficit() const;

  // --- What is held ---
  void Usage(absl::Time now, wire::TierUsage* out) const;
  void SegmentInfos(std::vector<wire::SegmentInfo>* out) const;
  // Adds this store's part: gets (chunks, not bytes: what was sent is the caller's to know), puts,
  // removals, in-flight bytes, records dropped.
  void FillCounters(wire::StoreCounters* out) const;
  uint64_t chunk_count() const;
  uint64_t inflight_bytes() const;
  // Whether nothing is held: no chunk, no put, no reader, every extent and header free.
  bool AllFree() const;
  // Records of up to `max` committed chunks from `cursor` on (0 at first) in `page`, all but its
  // snapshot_id; the cursor for the next call, nullopt at the end. A page may be empty before the
  // end. Every chunk that is there during the whole walk is given once.
  std::optional<uint64_t> ReadPage(uint64_t cursor, size_t max, wire::SnapshotPage* page) const;
  // Appends the namespace's chunks that have a kept key, from `cursor` on (0 at first); one short
  // hold of the mutex. The cursor for the next call, nullopt at the end. A name keeps its place for
  // the life of the process: what is there during the whole walk, replaced or not, is given.
  std::optional<uint64_t> ReadKeys(NamespaceIndex ns, uint64_t cursor, absl::Time now,
                                   std::vector<KeptKey>* out) const;

 private:
  friend class PutSlot;
  friend class ChunkRef;

  struct SegmentState {
    SegmentState(std::unique_ptr<Segment> s, uint32_t first);
    std::unique_ptr<Segment> segment;
    ExtentAllocator extents;
    HeaderTable headers;
    uint32_t first_entry;
    // Every extent handed out, by its offset in pages: who lies beside whom.
    struct Neighbour {
      uint32_t entry = 0;
      uint32_t pages = 0;
    };
    absl::btree_map<uint32_t, Neighbour> by_address;
    void NoteExtent(const Extent& extent, uint32_t entry);
    void ForgetExtent(const Extent& extent);
    bool draining = false;      // takes no puts; goes when it is empty
    uint32_t drain_cursor = 0;  // in by_address: where the next slice goes on
    absl::flat_hash_map<uint32_t, uint32_t> namespace_slot;  // namespace index -> slot
    std::vector<uint32_t> free_slots;
  };
  struct NamespaceState {
    NamespaceRecord record;
    uint32_t tenant_tag = 0;
    uint64_t chunk_count = 0;
    uint64_t payload_bytes = 0;
    uint64_t writing_count = 0;
    uint64_t serial = 0;
    uint64_t bind_count = 0;
    bool dropped = false;      // the next opener's options count, once nothing is left of it
    uint64_t last_record = 0;  // sequence number of its last record in the log
  };

  ChunkStore(const ChunkStoreOptions& options, std::vector<std::unique_ptr<Segment>> segments,
             std::unique_ptr<VersionCeiling> versions);

  // chunk_store.cc
  void Recover(absl::Time now);
  void RecoverNamespacesLocked(uint32_t segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool KeepsLocked(const HeaderFields& fields, uint64_t now_ms)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EnterRecoveredLocked(const ScannedHeader& scanned) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `may_reuse`: when all indexes are taken an unused one may be (not while chunks are recovered).
  absl::StatusOr<NamespaceIndex> EnterNamespaceLocked(const NamespaceRecord& record, bool may_reuse)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Frees the namespace's slots in the segments. Precondition: no chunk of it is there or coming.
  void ClearNamespaceSlotsLocked(uint32_t ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsEmptyLocked(const NamespaceState& ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ns.chunk_count == 0 && ns.writing_count == 0;
  }
  // A namespace whose index may be given to another; kMaxCount when there is none.
  uint32_t UnusedNamespaceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NamespaceEntry NamespaceEntryLocked(uint32_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AppendRecordLocked(const Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool EnsureNamespaceSlotLocked(SegmentState& segment, NamespaceIndex ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t SegmentNumberLocked(uint32_t entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SegmentState& SegmentOfLocked(uint32_t entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return *segments_[SegmentNumberLocked(entry)];
  }
  const SegmentState& SegmentOfLocked(uint32_t entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return *segments_[SegmentNumberLocked(entry)];
  }
  absl::Status EnterSegmentLocked(std::unique_ptr<Segment> segment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SegmentState* FindSegmentLocked(const SegmentId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HeaderIndex HeaderOf(const SegmentState& segment, uint32_t entry) const {
    return HeaderIndex(entry - segment.first_entry);
  }

  // chunk_store_put.cc
  void BeginOneLocked(NamespaceIndex ns, const PutItem& item, const PutOptions& options,
                      uint64_t expiry_unix_ms, absl::Time now, PutAnswer* answer, RoomNeeded* room)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReserveLocked(NamespaceIndex ns, const PutItem& item, const PutOptions& options,
                     uint64_t expiry_unix_ms, const PartLayout& layout, PutAnswer* answer,
                     RoomNeeded* room) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Version 0: another chunk of that name is there and this is no replace; the slot is given back.
  Version CommitLocked(PutSlot* slot, const CommitOptions& options, uint64_t root, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AbortSlot(PutSlot* slot);
  void AbortSlotLocked(PutSlot* slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // chunk_store_get.cc
  ChunkRef AcquireLocked(NamespaceIndex ns, const ChunkName& name, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the entry's header says; none where the header, which lies in the segment, has rotted:
  // nothing is believed of it unseen.
  std::optional<HeaderFields> SoundHeaderLocked(uint32_t entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Empty: its header is unsound, and the chunk is gone now.
  ChunkRef MakeRefLocked(uint32_t entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The committed entry of that name, namespace and version (0 = any); kNone.
  uint32_t FindLocked(NamespaceIndex ns, const ChunkName& name, Version version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseRef(uint32_t entry);

  // chunk_store_removal.cc
  // Unlinks a committed chunk; without readers it is freed at once. No record if `silent`.
  void RemoveLocked(uint32_t entry, wire::Cause cause, bool silent = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RecycleLocked(uint32_t entry, const Extent& extent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The extent of an entry in use, whatever has become of its header.
  Extent ExtentOfLocked(uint32_t entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool EvictableLocked(const ChunkEntry& e, int64_t now_s) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EvictAroundLocked(uint32_t anchor, uint64_t extent_bytes, wire::Cause cause, int64_t now_s,
                         EvictResult* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RoomMadeLocked(const EvictResult& so_far, uint64_t bytes, uint64_t extent_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ChunkStoreOptions options_;
  std::unique_ptr<VersionCeiling> versions_;
  RecoveryReport recovery_;  // written by Create only
  RecordLog log_;

  mutable Mutex mutex_;
  // By first_entry. Numbers of a segment that went are taken by one that comes.
  std::vector<std::unique_ptr<SegmentState>> segments_ ABSL_GUARDED_BY(mutex_);
  ChunkTable table_ ABSL_GUARDED_BY(mutex_);
  ExpiryIndex expiries_ ABSL_GUARDED_BY(mutex_);
  std::vector<NamespaceState> namespaces_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<NamespaceId, uint32_t> namespace_by_id_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_namespace_serial_ ABSL_GUARDED_BY(mutex_) = 1;
  uint32_t next_unused_ ABSL_GUARDED_BY(mutex_) = 0;  // where the search for one goes on
  uint64_t next_batch_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t capacity_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the segments that take puts
  uint64_t inflight_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t inflight_chunks_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t committed_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t payload_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t references_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t get_hits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t get_misses_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t put_chunks_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t put_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t put_present_ ABSL_GUARDED_BY(mutex_) = 0;
  PutOutcomes put_outcomes_ ABSL_GUARDED_BY(mutex_);
  uint64_t verify_failures_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<uint64_t, wire::Cause_ARRAYSIZE> removed_by_cause_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_CHUNK_STORE_H_
