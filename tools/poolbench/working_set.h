// The chunks that a case works on: their ids, and memory as large as all of them.
#ifndef CISTERN_TOOLS_POOLBENCH_WORKING_SET_H_
#define CISTERN_TOOLS_POOLBENCH_WORKING_SET_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "client/client.h"
#include "tools/poolbench/options.h"

namespace cistern::poolbench {

enum class MemoryOrigin {
  kAllocated,  // Client::AllocateBuffer's
  kForeign,    // mapped by us, registered: what an engine brings
};

struct WorkingSetOptions {
  uint64_t bytes = 0;
  uint64_t chunk_bytes = 0;
  uint64_t spans = 1;
  MemoryOrigin origin = MemoryOrigin::kAllocated;
};

// Movable. With several spans a chunk's pieces lie as in a paged cache: all chunks' first pieces,
// then all their second ones, ...; no two pieces of a chunk touch.
class WorkingSet {
 public:
  // Every byte of the memory has been written. The namespace is new. Borrows the client.
  static absl::StatusOr<WorkingSet> Make(Client& client, const WorkingSetOptions& options);

  size_t size() const { return ids_.size(); }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  Namespace& ns() { return *ns_; }
  absl::Span<const KeyId> ids() const { return ids_; }
  Memory memory(size_t chunk) const;
  // Chunks [begin, end) are thread `i`'s of `threads`.
  std::pair<size_t, size_t> Share(uint64_t i, uint64_t threads) const {
    return {size() * i / threads, size() * (i + 1) / threads};
  }

  // Puts chunks [begin, end), `batch` a call; an error unless each is stored by it.
  absl::Status Put(size_t begin, size_t end, size_t batch);
  // A put is acknowledged a moment before the master knows of it. DeadlineExceeded after 10 s.
  absl::Status AwaitVisible(Clock& clock);
  absl::Status RemoveAll();

 private:
  std::shared_ptr<Namespace> ns_;
  std::shared_ptr<void> mapping_;  // foreign memory; outlives its registration
  Buffer buffer_;
  uint64_t chunk_bytes_ = 0;
  uint64_t spans_per_chunk_ = 1;
  std::vector<KeyId> ids_;
  std::vector<Span> spans_;
};

// The first chunk whose code is not as expected makes a measurement void.
absl::Status Expect(const BatchResult& result, ChunkCode expected, const char* what);

// Where piece `piece` of chunk `chunk` lies, in bytes from the start.
uint64_t PieceOffset(uint64_t chunk, uint64_t piece, uint64_t chunks, uint64_t piece_bytes);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_WORKING_SET_H_
