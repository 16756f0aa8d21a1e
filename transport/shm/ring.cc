#include "transport/shm/ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cistern::transport {

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
  std::memcpy(ring_ + at, data, first);
  if (first < bytes) std::memcpy(ring_, static_cast<const char*>(data) + first, bytes - first);
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
