// How a store's share of a batch is cut into requests.
#ifndef CISTERN_CLIENT_BATCHING_H_
#define CISTERN_CLIENT_BATCHING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/ids.h"
#include "transport/frame.h"
#include "transport/identity.h"

namespace cistern {

// Payload of one request: large enough that its own cost vanishes, small enough that several
// connections and the budget of bytes in flight can share the work.
inline constexpr uint64_t kRequestPayloadBytes = uint64_t{64} << 20;

struct RequestLimits {
  size_t max_chunks = kMaxKeysPerRequest;
  uint64_t max_bytes = kRequestPayloadBytes;

  // What `peer` takes (an empty one: not known yet), and never more than `budget` bytes.
  static RequestLimits For(const transport::PeerInfo& peer, size_t meta_bytes_per_chunk,
                           uint64_t budget) {
    constexpr size_t kOtherFields = 1024;
    RequestLimits limits;
    if (peer.max_keys > 0) limits.max_chunks = std::min<size_t>(limits.max_chunks, peer.max_keys);
    const size_t meta = peer.max_meta_bytes > 0 ? peer.max_meta_bytes : transport::kMaxMetaBytesTcp;
    limits.max_chunks = std::clamp<size_t>(
        (meta - std::min(meta, kOtherFields)) / meta_bytes_per_chunk, 1, limits.max_chunks);
    limits.max_bytes = std::min(limits.max_bytes, budget);
    if (peer.max_payload_bytes > 0) {
      limits.max_bytes = std::min(limits.max_bytes, peer.max_payload_bytes);
    }
    return limits;
  }
};

// Cuts `items` in order; a single item beyond max_bytes stands alone.
inline std::vector<std::vector<uint32_t>> CutIntoRequests(
    const std::vector<uint32_t>& items, const RequestLimits& limits,
    absl::FunctionRef<uint64_t(uint32_t)> bytes_of) {
  std::vector<std::vector<uint32_t>> requests;
  uint64_t bytes = 0;
  for (const uint32_t item : items) {
    const uint64_t more = bytes_of(item);
    if (requests.empty() || requests.back().size() >= limits.max_chunks ||
        bytes + more > limits.max_bytes) {
      requests.emplace_back();
      bytes = 0;
    }
    requests.back().push_back(item);
    bytes += more;
  }
  return requests;
}

// Takes from the end of `items` as many as make a request of at most `max_bytes` and
// limits.max_chunks; none where the last alone is larger.
inline std::vector<uint32_t> TakeSuffix(std::vector<uint32_t>* items, const RequestLimits& limits,
                                        uint64_t max_bytes,
                                        absl::FunctionRef<uint64_t(uint32_t)> bytes_of) {
  max_bytes = std::min(max_bytes, limits.max_bytes);
  size_t first = items->size();
  uint64_t bytes = 0;
  while (first > 0 && items->size() - first < limits.max_chunks) {
    const uint64_t more = bytes_of((*items)[first - 1]);
    if (bytes + more > max_bytes) break;
    bytes += more;
    --first;
  }
  const auto from = items->begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<uint32_t> suffix(from, items->end());
  items->erase(from, items->end());
  return suffix;
}

}  // namespace cistern

#endif  // CISTERN_CLIENT_BATCHING_H_
