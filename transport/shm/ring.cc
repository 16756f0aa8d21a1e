#include "transport/shm/ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace cistern::transport {
namespace {

// Past the caches. Ordinary stores leave the ring's lines modified in this processor's cache, where
// the other side has to fetch each of them (docs/benchmarks/shm.md: at 2 GB/s in some runs), and
// read what they are about to overwrite.
void CopyPast(char* to, const char* from, uint64_t bytes) {
#if defined(__x86_64__)
  constexpr uint64_t kLeastPastBytes = 16 << 10;
  constexpr uint64_t kLine = 64;
  if (bytes >= kLeastPastBytes) {
    const uint64_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
      const auto* in = reinterpret_cast<const __m128i*>(from);
      auto* const out = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(in);
      const __m128i b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2);
      const __m128i d = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    // Before the record that tells of them.
    _mm_sfence();
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace

absl::StatusOr<uint64_t> RingSender::Room() {
  const uint64_t released = counters_.released.load(std::memory_order_acquire);
  if (released < released_ || released > sent_) {
    return absl::InvalidArgumentError("shm: the peer released what was not sent");
  }
  released_ = released;
  return ring_bytes_ - (sent_ - released);
}

void RingSender::Put(const void* data, uint64_t bytes) {
  const uint64_t at = sent_ % ring_bytes_;
  const uint64_t first = std::min(bytes, ring_bytes_ - at);
  CopyPast(ring_ + at, static_cast<const char*>(data), first);
  if (first < bytes) CopyPast(ring_, static_cast<const char*>(data) + first, bytes - first);
  sent_ += bytes;
}

bool RingSender::AskToBeWoken() {
  const uint64_t wake_at = sent_ - std::min(sent_, ring_bytes_ / 2);
  // The receiver stores `released`, then reads `wake_at`; here it is the other way round. In one
  // total order one of the two sees the other's.
  counters_.wake_at.store(wake_at, std::memory_order_seq_cst);
  return counters_.released.load(std::memory_order_seq_cst) >= wake_at;
}

void RingReceiver::Take(absl::Span<const iovec> to) {
  for (const iovec& piece : to) {
    const uint64_t at = taken_ % ring_bytes_;
    const uint64_t first = std::min<uint64_t>(piece.iov_len, ring_bytes_ - at);
    std::memcpy(piece.iov_base, ring_ + at, first);
    if (first < piece.iov_len) {
      std::memcpy(static_cast<char*>(piece.iov_base) + first, ring_, piece.iov_len - first);
    }
    taken_ += piece.iov_len;
  }
  Release();
}

void RingReceiver::Pass(uint64_t bytes) {
  taken_ += bytes;
  Release();
}

absl::Span<const char> RingReceiver::Peek(uint64_t max) const {
  const uint64_t at = taken_ % ring_bytes_;
  return {ring_ + at, std::min(max, ring_bytes_ - at)};
}

void RingReceiver::Release() {
  counters_.released.store(taken_, std::memory_order_seq_cst);
  const uint64_t wake_at = counters_.wake_at.load(std::memory_order_seq_cst);
  if (wake_at == 0 || wake_at == served_ || taken_ < wake_at) return;
  served_ = wake_at;
  wake_ = true;
}

bool RingReceiver::TakeWake() { return std::exchange(wake_, false); }

}  // namespace cistern::transport
