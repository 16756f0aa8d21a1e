#include "tools/poolbench/working_set.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "tools/replay/chunk_pattern.h"

namespace cistern::poolbench {
namespace {

absl::StatusOr<std::shared_ptr<void>> MapMemory(uint64_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "memory for the working set");
  return std::shared_ptr<void>(memory, [bytes](void* p) { munmap(p, bytes); });
}

}  // namespace

absl::Status Expect(const BatchResult& result, ChunkCode expected, const char* what) {
  CISTERN_RETURN_IF_ERROR(result.status);
  for (const ChunkResult& item : result.items) {
    if (item.code != expected) {
      return absl::InternalError(absl::StrCat(
          what, " ended with ", AbslView(ChunkCodeName(item.code)), ": ", result.message));
    }
  }
  return absl::OkStatus();
}

uint64_t PieceOffset(uint64_t chunk, uint64_t piece, uint64_t chunks, uint64_t piece_bytes) {
  return (piece * chunks + chunk) * piece_bytes;
}

absl::StatusOr<WorkingSet> WorkingSet::Make(Client& client, const WorkingSetOptions& options) {
  WorkingSet set;
  set.chunk_bytes_ = options.chunk_bytes;
  set.spans_per_chunk_ = options.spans;
  const std::string name = absl::StrCat("poolbench-", RandomId<OperationId>().ToHex());
  CISTERN_ASSIGN_OR_RETURN(set.ns_, client.OpenNamespace(name, "poolbench"));
  const uint64_t count = options.bytes / options.chunk_bytes;
  const uint64_t bytes = count * options.chunk_bytes;
  if (options.origin == MemoryOrigin::kForeign) {
    CISTERN_ASSIGN_OR_RETURN(set.mapping_, MapMemory(bytes));
    BufferDesc desc;
    desc.data = set.mapping_.get();
    desc.bytes = bytes;
    CISTERN_ASSIGN_OR_RETURN(set.buffer_, client.RegisterBuffer(desc));
  } else {
    CISTERN_ASSIGN_OR_RETURN(set.buffer_, client.AllocateBuffer(bytes));
  }
  auto* const base = static_cast<uint8_t*>(set.buffer_.data());
  const uint64_t piece_bytes = options.chunk_bytes / options.spans;
  set.ids_.reserve(count);
  set.spans_.reserve(count * options.spans);
  for (uint64_t i = 0; i < count; ++i) {
    CISTERN_ASSIGN_OR_RETURN(const KeyId id, set.ns_->Hash(std::string(absl::StrCat("chunk-", i))));
    set.ids_.push_back(id);
    for (uint64_t piece = 0; piece < options.spans; ++piece) {
      uint8_t* const at = base + PieceOffset(i, piece, count, piece_bytes);
      set.spans_.push_back({at, piece_bytes});
      replay::ChunkPattern(1, i * options.spans + piece).Fill(at, piece_bytes);
    }
  }
  return set;
}

Memory WorkingSet::memory(size_t chunk) const {
  Memory memory;
  memory.spans = absl::MakeConstSpan(&spans_[chunk * spans_per_chunk_], spans_per_chunk_);
  return memory;
}

absl::Status WorkingSet::Put(size_t begin, size_t end, size_t batch) {
  std::vector<PutItem> items;
  for (size_t first = begin; first < end; first += batch) {
    items.clear();
    for (size_t i = first; i < std::min(end, first + batch); ++i) {
      PutItem& item = items.emplace_back();
      item.id = ids_[i];
      item.memory = memory(i);
    }
    CISTERN_RETURN_IF_ERROR(Expect(ns_->BatchPut(items), ChunkCode::kOk, "put"));
  }
  return absl::OkStatus();
}

absl::Status WorkingSet::AwaitVisible(Clock& clock) {
  const MonoTime end = clock.Mono() + absl::Seconds(10);
  while (clock.Mono() < end) {
    CISTERN_ASSIGN_OR_RETURN(const std::vector<bool> there, ns_->Exists(ids_));
    if (std::find(there.begin(), there.end(), false) == there.end()) return absl::OkStatus();
    clock.SleepFor(absl::Milliseconds(1));
  }
  return absl::DeadlineExceededError(
      "not every chunk that was put is there: is the pool large enough for the working set?");
}

absl::Status WorkingSet::RemoveAll() {
  RemoveOptions remove;
  remove.force = true;
  remove.deadline = absl::Seconds(60);
  return ns_->RemoveAll(remove).status();
}

}  // namespace cistern::poolbench
