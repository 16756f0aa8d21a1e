// The memory that the caller registered, and who is using it.
//
// A call resolves the memory of its items once, when it starts: every span must lie inside one
// registered buffer that allows the use. The buffers found are pinned until the call has ended;
// unregistering a buffer refuses later calls at once and waits for the pins.
#ifndef CISTERN_CLIENT_BUFFER_REGISTRY_H_
#define CISTERN_CLIENT_BUFFER_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "client/client.h"
#include "client/memory_ref.h"

namespace cistern {

inline constexpr size_t kMaxSpansPerChunk = 4096;
inline constexpr size_t kMaxBuffers = 65'535;  // spans name their buffer with 16 bits on the wire

// Thread-safe. Lookups of a call's spans run without the lock, on an immutable table.
class BufferRegistry {
 public:
  enum class Use { kRead, kWrite };  // puts read, gets write

  // Buffers in use by one call. Movable; releases when destroyed, on any thread.
  class Pins;

  BufferRegistry();
  ~BufferRegistry();

  // InvalidArgument: no memory, or neither use allowed. Unimplemented: memory of a kind that no
  // wire serves. ResourceExhausted: kMaxBuffers are registered. The number returned names it.
  absl::StatusOr<uint32_t> Register(const BufferDesc& desc);
  // Returns when no call uses it.
  void Unregister(uint32_t buffer);

  // InvalidArgument unless, for each base, all its units lie in one registered buffer and the sum
  // of the pieces is a chunk's size.
  absl::StatusOr<LayoutId> RegisterLayout(const Layout& layout);
  // NotFound: no such layout. Calls under way keep using it.
  absl::Status UnregisterLayout(LayoutId id);

  // Checks and pins the memory of items 0 to n-1. (*refs)[i] is empty where it was refused;
  // *message then says why for the first of those.
  Pins Resolve(size_t n, absl::FunctionRef<const Memory&(size_t)> memory_of, Use use,
               std::vector<MemoryRef>* refs, std::string* message);

  size_t buffer_count() const;

 private:
  struct Entry;
  struct LayoutEntry;
  struct Table;
  class Lookup;

  std::shared_ptr<const Table> CurrentTable();
  // False when a buffer among them is being unregistered.
  bool Pin(const std::vector<Entry*>& entries);
  void Unpin(const std::vector<Entry*>& entries);

  mutable Mutex mutex_;
  CondVar unpinned_;
  absl::flat_hash_map<uint32_t, std::shared_ptr<Entry>> buffers_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint32_t, std::shared_ptr<LayoutEntry>> layouts_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Table> table_ ABSL_GUARDED_BY(mutex_);  // null: to be made anew
  uint32_t next_buffer_ ABSL_GUARDED_BY(mutex_) = 1;
  uint32_t next_layout_ ABSL_GUARDED_BY(mutex_) = 1;
};

class BufferRegistry::Pins {
 public:
  Pins() = default;
  Pins(Pins&& other) noexcept { *this = std::move(other); }
  Pins& operator=(Pins&& other) noexcept;
  ~Pins() { Release(); }
  void Release();

 private:
  friend class BufferRegistry;
  BufferRegistry* registry_ = nullptr;
  std::shared_ptr<const Table> table_;  // keeps the entries' storage
  std::vector<std::shared_ptr<LayoutEntry>> layouts_;
  std::vector<Entry*> entries_;
};

// Marks the items (by position in `refs`) whose memory overlaps another item's, or itself.
std::vector<bool> FindOverlaps(const std::vector<MemoryRef>& refs);

}  // namespace cistern

#endif  // CISTERN_CLIENT_BUFFER_REGISTRY_H_
