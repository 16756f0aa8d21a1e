#include "base/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/copy_digest.h"
#include "base/status.h"
#define XXH_STATIC_LINKING_ONLY  // For the size of XXH3_state_t.
#if defined(__x86_64__)
#include "xxh_x86dispatch.h"  // The library's plain functions stop at SSE2.
#else
#include "xxhash.h"
#endif

namespace cistern {
namespace {

static_assert(std::endian::native == std::endian::little, "digests are hashed in place");

// What follows the part digests in the root's input.
constexpr size_t kTailBytes = sizeof(uint64_t) + KeyId::kBytes + sizeof(uint16_t);

void FillTail(uint64_t length, const ChunkName& name, uint8_t* tail) {
  std::memcpy(tail, &length, sizeof(length));
  std::memcpy(tail + 8, name.id.bytes.data(), KeyId::kBytes);
  std::memcpy(tail + 24, &name.shard.value, sizeof(name.shard.value));
}

}  // namespace

// The type asks for 64-byte alignment; operator new honours that.
struct DigestStream::State {
  XXH3_state_t xxh;
  CopyDigest copying;
  // Which of the two has the bytes so far: the library is as fast as the processor allows, and
  // cannot copy.
  enum class Holder { kNone, kLibrary, kCopying } holder = Holder::kNone;
};

PartDigest DigestOf(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

absl::StatusOr<PartLayout> PartLayout::Make(uint64_t length, uint64_t part_bytes) {
  if (length < kMinChunkBytes || length > kMaxChunkBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk has ", kMinChunkBytes, " to ",
                                                   kMaxChunkBytes, " bytes, not ", length));
  }
  if (part_bytes == 0) {
    part_bytes = std::max(kMinPartBytes, std::bit_ceil(std::min(length, kDefaultPartBytes)));
  }
  if (part_bytes < kMinPartBytes || !std::has_single_bit(part_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("part_bytes is a power of two from ", kMinPartBytes, " on, not ", part_bytes));
  }
  // Not RoundUp: part_bytes may be as large as 2^63.
  const uint64_t count = length / part_bytes + (length % part_bytes != 0 ? 1 : 0);
  if (count > kMaxParts) {
    return absl::InvalidArgumentError(absl::StrCat("part_bytes ", part_bytes, " cuts ", length,
                                                   " bytes into ", count, " parts; at most ",
                                                   kMaxParts, " are allowed"));
  }
  return PartLayout{length, part_bytes, static_cast<uint32_t>(count)};
}

uint64_t PartLayout::PartBytes(uint32_t part) const {
  return std::min(part_bytes, length - PartBegin(part));
}

uint64_t RootDigest(absl::Span<const PartDigest> parts, uint64_t length, const ChunkName& name) {
  // Most chunks have few parts: one pass over one small buffer is several times faster than
  // setting up a stream.
  constexpr size_t kFew = 64;
  const size_t table_bytes = parts.size() * sizeof(PartDigest);
  if (parts.size() <= kFew) {
    uint8_t buffer[kFew * sizeof(PartDigest) + kTailBytes];
    if (table_bytes > 0) std::memcpy(buffer, parts.data(), table_bytes);
    FillTail(length, name, buffer + table_bytes);
    return XXH3_64bits(buffer, table_bytes + kTailBytes);
  }
  DigestStream stream;
  stream.Update(parts.data(), table_bytes);
  return RootDigest(&stream, length, name);
}

uint64_t RootDigest(DigestStream* parts, uint64_t length, const ChunkName& name) {
  uint8_t tail[kTailBytes];
  FillTail(length, name, tail);
  parts->Update(tail, sizeof(tail));
  return parts->Finish();
}

DigestStream::DigestStream() : state_(std::make_unique<State>()) { Reset(); }
DigestStream::~DigestStream() = default;
DigestStream::DigestStream(DigestStream&&) noexcept = default;
DigestStream& DigestStream::operator=(DigestStream&&) noexcept = default;

void DigestStream::Reset() {
  if (state_->holder != State::Holder::kCopying) XXH3_64bits_reset(&state_->xxh);
  state_->holder = State::Holder::kNone;
}

void DigestStream::Update(const void* data, size_t bytes) {
  if (state_->holder == State::Holder::kCopying) return state_->copying.Update(data, bytes);
  state_->holder = State::Holder::kLibrary;
  XXH3_64bits_update(&state_->xxh, data, bytes);
}

void DigestStream::CopyUpdate(void* to, const void* from, size_t bytes) {
  if (state_->holder == State::Holder::kLibrary || !CopyDigest::Supported()) {
    std::memcpy(to, from, bytes);
    return Update(to, bytes);
  }
  if (state_->holder == State::Holder::kNone) state_->copying.Reset();
  state_->holder = State::Holder::kCopying;
  state_->copying.CopyUpdate(to, from, bytes);
}

PartDigest DigestStream::Finish() const {
  if (state_->holder == State::Holder::kCopying) return state_->copying.Finish();
  return XXH3_64bits_digest(&state_->xxh);
}

ChunkDigester::ChunkDigester(const PartLayout& layout) : layout_(layout) {
  parts_.reserve(layout.count);
}

void ChunkDigester::Update(const void* data, size_t bytes) {
  Feed(nullptr, static_cast<const uint8_t*>(data), bytes);
}

void ChunkDigester::CopyUpdate(void* to, const void* from, size_t bytes) {
  Feed(static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), bytes);
}

void ChunkDigester::Feed(uint8_t* to, const uint8_t* from, size_t bytes) {
  CISTERN_CHECK(bytes <= layout_.length - fed_);
  while (bytes > 0) {
    const uint32_t part = static_cast<uint32_t>(parts_.size());
    const uint64_t part_bytes = layout_.PartBytes(part);
    const uint64_t in_part = fed_ - layout_.PartBegin(part);
    const size_t n = static_cast<size_t>(std::min<uint64_t>(bytes, part_bytes - in_part));
    if (n == part_bytes && to == nullptr) {  // The whole part at once needs no stream.
      parts_.push_back(DigestOf(from, n));
    } else {
      if (to == nullptr) {
        stream_.Update(from, n);
      } else {
        stream_.CopyUpdate(to, from, n);
        to += n;
      }
      if (in_part + n == part_bytes) {
        parts_.push_back(stream_.Finish());
        stream_.Reset();
      }
    }
    fed_ += n;
    from += n;
    bytes -= n;
  }
}

}  // namespace cistern
