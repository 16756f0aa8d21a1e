#include "client/buffer_registry.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern {

struct BufferRegistry::Entry {
  uint32_t number = 0;
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool readable = false;
  bool writable = false;
  // Guarded by the registry's mutex.
  bool leaving = false;
  uint32_t pins = 0;
};

struct BufferRegistry::LayoutEntry {
  Layout layout;
  std::shared_ptr<const Table> table;  // keeps `entries` alive
  std::vector<Entry*> entries;
  bool readable = true;
  bool writable = true;
};

// Buffers sorted by where they begin. Among those that begin at or before an address, the one that
// ends last contains a span there if any does: so each row keeps the last-ending of all up to it,
// for either use, and a lookup is one binary search however buffers overlap.
struct BufferRegistry::Table {
  std::vector<std::shared_ptr<Entry>> owners;
  std::vector<uintptr_t> begins;
  std::vector<Entry*> last_ending[2];  // by Use

  Entry* Find(uintptr_t address, uint64_t bytes, Use use) const {
    const auto after = std::upper_bound(begins.begin(), begins.end(), address);
    if (after == begins.begin()) return nullptr;
    Entry* entry = last_ending[static_cast<int>(use)][after - begins.begin() - 1];
    if (entry == nullptr || address >= entry->end || bytes > entry->end - address) return nullptr;
    return entry;
  }
};

// One call's resolution: remembers the last hits, since neighbours in a batch are neighbours in
// memory, and collects the distinct buffers.
class BufferRegistry::Lookup {
 public:
  Lookup(std::shared_ptr<const Table> table, Use use) : table_(std::move(table)), use_(use) {}

  absl::StatusOr<MemoryRef> ResolveSpans(absl::Span<const Span> spans) {
    if (spans.empty()) return absl::InvalidArgumentError("no memory: neither spans nor a layout");
    if (spans.size() > kMaxSpansPerChunk) {
      return absl::InvalidArgumentError(
          absl::StrCat(spans.size(), " spans for one chunk; at most ", kMaxSpansPerChunk));
    }
    uint64_t sum = 0;
    for (const Span& span : spans) {
      if (span.bytes == 0) return absl::InvalidArgumentError("a span of 0 bytes");
      // Nothing larger than a chunk is of use, and so the sum cannot overflow.
      if (span.bytes > kMaxChunkBytes) return absl::InvalidArgumentError("a span beyond 1 GiB");
      if (!Contains(span)) {
        return absl::InvalidArgumentError(
            absl::StrCat("span at 0x", absl::Hex(reinterpret_cast<uintptr_t>(span.data)), " of ",
                         span.bytes, " bytes does not lie in one registered buffer that allows ",
                         use_ == Use::kRead ? "puts to read it" : "gets to write it"));
      }
      sum += span.bytes;
    }
    return MemoryRef(spans, sum);
  }

  void Add(Entry* entry) {
    if (seen_.insert(entry).second) entries_.push_back(entry);
  }
  std::vector<Entry*>& entries() { return entries_; }
  const std::shared_ptr<const Table>& table() const { return table_; }

 private:
  bool Contains(const Span& span) {
    const auto address = reinterpret_cast<uintptr_t>(span.data);
    if (last_ != nullptr && address >= last_->begin && address < last_->end &&
        span.bytes <= last_->end - address) {
      return true;
    }
    Entry* entry = table_->Find(address, span.bytes, use_);
    if (entry == nullptr) return false;
    Add(entry);
    last_ = entry;
    return true;
  }

  std::shared_ptr<const Table> table_;
  const Use use_;
  Entry* last_ = nullptr;
  absl::flat_hash_set<Entry*> seen_;
  std::vector<Entry*> entries_;
};

namespace {

absl::Status CheckLayoutShape(const Layout& layout) {
  if (layout.bases.empty() || layout.bases.size() > kMaxSpansPerChunk) {
    return absl::InvalidArgumentError(
        absl::StrCat("a layout has 1 to ", kMaxSpansPerChunk, " bases"));
  }
  if (layout.unit_count == 0) return absl::InvalidArgumentError("a layout without units");
  if (layout.piece_bytes == 0 || layout.piece_bytes > kMaxChunkBytes ||
      layout.piece_bytes * layout.bases.size() < kMinChunkBytes ||
      layout.piece_bytes * layout.bases.size() > kMaxChunkBytes) {
    return absl::InvalidArgumentError("the pieces of a layout's unit sum to 4 KiB to 1 GiB");
  }
  if (layout.unit_count > 1 && layout.unit_stride_bytes < layout.piece_bytes) {
    return absl::InvalidArgumentError("a layout's stride is shorter than its pieces");
  }
  uint64_t reach = 0;
  if (__builtin_mul_overflow(layout.unit_stride_bytes, uint64_t{layout.unit_count} - 1, &reach) ||
      __builtin_add_overflow(reach, layout.piece_bytes, &reach)) {
    return absl::InvalidArgumentError("a layout beyond the address space");
  }
  return absl::OkStatus();
}

}  // namespace

BufferRegistry::BufferRegistry() = default;
BufferRegistry::~BufferRegistry() = default;

absl::StatusOr<uint32_t> BufferRegistry::Register(const BufferDesc& desc) {
  if (desc.kind != MemoryKind::kHost) {
    return absl::UnimplementedError("no wire of this build serves device memory");
  }
  const auto begin = reinterpret_cast<uintptr_t>(desc.data);
  if (begin == 0 || desc.bytes == 0 || desc.bytes > UINTPTR_MAX - begin) {
    return absl::InvalidArgumentError("a buffer needs an address and a length");
  }
  if (!desc.remote_read && !desc.remote_write) {
    return absl::InvalidArgumentError("a buffer that neither puts nor gets may use");
  }
  auto entry = std::make_shared<Entry>();
  entry->begin = begin;
  entry->end = begin + desc.bytes;
  entry->readable = desc.remote_read;
  entry->writable = desc.remote_write;
  MutexLock lock(mutex_);
  if (buffers_.size() >= kMaxBuffers) {
    return absl::ResourceExhaustedError(absl::StrCat(kMaxBuffers, " buffers are registered"));
  }
  while (buffers_.contains(next_buffer_) || next_buffer_ == 0) ++next_buffer_;
  entry->number = next_buffer_++;
  const uint32_t number = entry->number;
  buffers_.emplace(number, std::move(entry));
  table_.reset();
  return number;
}

void BufferRegistry::Unregister(uint32_t buffer) {
  MutexLock lock(mutex_);
  const auto found = buffers_.find(buffer);
  if (found == buffers_.end()) return;
  const std::shared_ptr<Entry> entry = found->second;
  buffers_.erase(found);
  table_.reset();
  entry->leaving = true;
  while (entry->pins > 0) unpinned_.Wait(mutex_);
}

std::shared_ptr<const BufferRegistry::Table> BufferRegistry::CurrentTable() {
  MutexLock lock(mutex_);
  if (table_ != nullptr) return table_;
  auto table = std::make_shared<Table>();
  table->owners.reserve(buffers_.size());
  for (const auto& [number, entry] : buffers_) table->owners.push_back(entry);
  std::sort(table->owners.begin(), table->owners.end(),
            [](const auto& a, const auto& b) { return a->begin < b->begin; });
  Entry* best[2] = {nullptr, nullptr};
  for (const auto& entry : table->owners) {
    table->begins.push_back(entry->begin);
    const bool allowed[2] = {entry->readable, entry->writable};
    for (int use = 0; use < 2; ++use) {
      if (allowed[use] && (best[use] == nullptr || entry->end > best[use]->end)) {
        best[use] = entry.get();
      }
      table->last_ending[use].push_back(best[use]);
    }
  }
  table_ = std::move(table);
  return table_;
}

absl::StatusOr<LayoutId> BufferRegistry::RegisterLayout(const Layout& layout) {
  CISTERN_RETURN_IF_ERROR(CheckLayoutShape(layout));
  auto entry = std::make_shared<LayoutEntry>();
  entry->layout = layout;
  entry->table = CurrentTable();
  const uint64_t reach = layout.unit_stride_bytes * (layout.unit_count - 1) + layout.piece_bytes;
  for (void* base : layout.bases) {
    const auto address = reinterpret_cast<uintptr_t>(base);
    Entry* writable = entry->table->Find(address, reach, Use::kWrite);
    Entry* readable = entry->table->Find(address, reach, Use::kRead);
    if (writable == nullptr && readable == nullptr) {
      return absl::InvalidArgumentError("a layout's base reaches beyond registered buffers");
    }
    // One buffer that serves both is pinned once; else what only one use needs is pinned for both.
    for (Entry* found : {writable, readable}) {
      if (found != nullptr &&
          std::find(entry->entries.begin(), entry->entries.end(), found) == entry->entries.end()) {
        entry->entries.push_back(found);
      }
    }
    entry->writable = entry->writable && writable != nullptr;
    entry->readable = entry->readable && readable != nullptr;
  }
  MutexLock lock(mutex_);
  while (layouts_.contains(next_layout_) || next_layout_ == 0) ++next_layout_;
  const LayoutId id{next_layout_++};
  layouts_.emplace(id.value, std::move(entry));
  return id;
}

absl::Status BufferRegistry::UnregisterLayout(LayoutId id) {
  MutexLock lock(mutex_);
  if (layouts_.erase(id.value) == 0) return absl::NotFoundError("no such layout");
  return absl::OkStatus();
}

bool BufferRegistry::Pin(const std::vector<Entry*>& entries) {
  MutexLock lock(mutex_);
  for (const Entry* entry : entries) {
    if (entry->leaving) return false;
  }
  for (Entry* entry : entries) ++entry->pins;
  return true;
}

void BufferRegistry::Unpin(const std::vector<Entry*>& entries) {
  MutexLock lock(mutex_);
  bool wake = false;
  for (Entry* entry : entries) {
    --entry->pins;
    wake = wake || entry->leaving;
  }
  if (wake) unpinned_.NotifyAll();
}

BufferRegistry::Pins BufferRegistry::Resolve(size_t n,
                                             absl::FunctionRef<const Memory&(size_t)> memory_of,
                                             Use use, std::vector<MemoryRef>* refs,
                                             std::string* message) {
  absl::flat_hash_map<uint32_t, std::shared_ptr<LayoutEntry>> layouts;
  // A buffer that is unregistered between the look and the pin means one more look: the table is a
  // new one by then. Each turn needs another Unregister, so this ends.
  for (;;) {
    Lookup lookup(CurrentTable(), use);
    refs->assign(n, MemoryRef());
    message->clear();
    layouts.clear();
    const auto refuse = [&](size_t i, absl::string_view why) {
      if (message->empty()) *message = absl::StrCat("item ", i, ": ", why);
    };
    for (size_t i = 0; i < n; ++i) {
      const Memory& memory = memory_of(i);
      if (memory.layout.value == 0) {
        absl::StatusOr<MemoryRef> ref = lookup.ResolveSpans(memory.spans);
        if (ref.ok()) {
          (*refs)[i] = *ref;
        } else {
          refuse(i, ref.status().message());
        }
        continue;
      }
      auto [found, is_new] = layouts.try_emplace(memory.layout.value);
      if (is_new) {
        MutexLock lock(mutex_);
        const auto it = layouts_.find(memory.layout.value);
        bool usable = it != layouts_.end() &&
                      (use == Use::kRead ? it->second->readable : it->second->writable);
        if (usable) {
          for (const Entry* entry : it->second->entries) usable = usable && !entry->leaving;
        }
        if (usable) {
          found->second = it->second;
          for (Entry* entry : it->second->entries) lookup.Add(entry);
        }
      }
      if (!memory.spans.empty()) {
        refuse(i, "both spans and a layout");
      } else if (found->second == nullptr) {
        refuse(i, "a layout that is not registered, or whose memory is not");
      } else if (memory.unit >= found->second->layout.unit_count) {
        refuse(i, "the layout has no such unit");
      } else {
        (*refs)[i] = MemoryRef(&found->second->layout, memory.unit);
      }
    }
    if (!Pin(lookup.entries())) continue;
    Pins pins;
    pins.registry_ = this;
    pins.table_ = lookup.table();
    pins.entries_ = std::move(lookup.entries());
    for (auto& [id, layout] : layouts) {
      if (layout != nullptr) pins.layouts_.push_back(std::move(layout));
    }
    return pins;
  }
}

size_t BufferRegistry::buffer_count() const {
  MutexLock lock(mutex_);
  return buffers_.size();
}

BufferRegistry::Pins& BufferRegistry::Pins::operator=(Pins&& other) noexcept {
  if (this == &other) return *this;
  Release();
  registry_ = std::exchange(other.registry_, nullptr);
  table_ = std::move(other.table_);
  layouts_ = std::move(other.layouts_);
  entries_ = std::move(other.entries_);
  return *this;
}

void BufferRegistry::Pins::Release() {
  if (registry_ == nullptr) return;
  std::exchange(registry_, nullptr)->Unpin(entries_);
  entries_.clear();
  layouts_.clear();
  table_.reset();
}

std::vector<bool> FindOverlaps(const std::vector<MemoryRef>& refs) {
  struct Interval {
    uintptr_t begin;
    uintptr_t end;
    size_t item;
  };
  std::vector<Interval> intervals;
  size_t total = 0;
  for (const MemoryRef& ref : refs) total += ref.piece_count();
  intervals.reserve(total);
  for (size_t i = 0; i < refs.size(); ++i) {
    for (uint32_t p = 0; p < refs[i].piece_count(); ++p) {
      const iovec piece = refs[i].piece(p);
      const auto begin = reinterpret_cast<uintptr_t>(piece.iov_base);
      intervals.push_back({begin, begin + piece.iov_len, i});
    }
  }
  const auto by_begin = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
  if (!std::is_sorted(intervals.begin(), intervals.end(), by_begin)) {
    std::sort(intervals.begin(), intervals.end(), by_begin);
  }
  // Whoever overlaps anyone overlaps, when its turn comes, the one that reaches furthest so far
  // (and that one overlaps it); whoever lost the lead by an overlap was marked then.
  std::vector<bool> overlaps(refs.size());
  const Interval* furthest = nullptr;
  for (const Interval& interval : intervals) {
    if (furthest != nullptr && interval.begin < furthest->end) {
      overlaps[interval.item] = true;
      overlaps[furthest->item] = true;
    }
    if (furthest == nullptr || interval.end > furthest->end) furthest = &interval;
  }
  return overlaps;
}

}  // namespace cistern
