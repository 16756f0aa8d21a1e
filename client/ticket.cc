#include "client/ticket.h"

#include <algorithm>
#include <cstring>

#include "base/columns.h"
#include "base/crc32c.h"
#include "base/status.h"

namespace cistern {
namespace {

constexpr uint32_t kMagic = 0x314B5443;  // "CTK1"
constexpr uint32_t kFlagShortened = 1;

struct Head {
  uint32_t magic;
  uint32_t keys;
  uint16_t shard_first;
  uint16_t shard_count;
  uint16_t stores;
  uint16_t leases;
  uint32_t lease_ms;
  uint32_t flags;
  uint8_t ns[NamespaceId::kBytes];
};
static_assert(sizeof(Head) == 40 && offsetof(Head, ns) == 24);

template <typename T>
void Append(const std::vector<T>& values, std::string* out) {
  if (!values.empty()) {
    out->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
}

// Takes n elements from the front of `bytes`, whose size was checked.
template <typename T>
void Take(size_t n, std::string_view* bytes, std::vector<T>* out) {
  out->resize(n);
  if (n > 0) std::memcpy(out->data(), bytes->data(), n * sizeof(T));
  bytes->remove_prefix(n * sizeof(T));
}

}  // namespace

void FillPresence(LookupResult* result) {
  const size_t keys = result->ids.size();
  result->present.assign(keys, false);
  result->leading_run = 0;
  for (size_t k = 0; k < keys; ++k) {
    const auto first = result->stores.begin() + static_cast<ptrdiff_t>(k * result->shard_count);
    const bool all = std::find(first, first + result->shard_count, LookupResult::kNoStore) ==
                     first + result->shard_count;
    result->present[k] = all;
    if (all && result->leading_run == k) ++result->leading_run;
  }
}

std::string SerializeTicket(const LookupResult& result) {
  static_assert(sizeof(KeyId) == 16 && sizeof(StoreId) == 16 && sizeof(LeaseId) == 16);
  Head head{};
  head.magic = kMagic;
  head.keys = static_cast<uint32_t>(result.ids.size());
  head.shard_first = result.shard_first;
  head.shard_count = result.shard_count;
  head.stores = static_cast<uint16_t>(result.store_ids.size());
  head.leases = static_cast<uint16_t>(result.leases.size());
  head.lease_ms = static_cast<uint32_t>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(result.lease_time), 0, UINT32_MAX));
  head.flags = result.lease_shortened ? kFlagShortened : 0;
  std::memcpy(head.ns, result.ns.bytes.data(), sizeof(head.ns));
  std::string out;
  out.reserve(sizeof(head) + 16 * (head.stores + head.leases + result.ids.size()) +
              2 * result.stores.size() + 4);
  out.append(reinterpret_cast<const char*>(&head), sizeof(head));
  Append(result.store_ids, &out);
  Append(result.leases, &out);
  Append(result.ids, &out);
  Append(result.stores, &out);
  const uint32_t crc = Crc32c(out.data(), out.size());
  out.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  return out;
}

absl::StatusOr<LookupResult> ParseTicket(std::string_view bytes) {
  const absl::Status bad = absl::InvalidArgumentError("not a ticket of this version, or damaged");
  Head head;
  if (bytes.size() < sizeof(head) + 4) return bad;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.magic != kMagic || head.shard_count == 0 ||
      head.shard_first + head.shard_count > Shard::kMax + 1) {
    return bad;
  }
  // At most 2^32 x 2^12 chunks: 64 bits hold every product.
  const uint64_t chunks = uint64_t{head.keys} * head.shard_count;
  if (bytes.size() !=
      sizeof(head) + 16 * (uint64_t{head.stores} + head.leases + head.keys) + 2 * chunks + 4) {
    return bad;
  }
  uint32_t crc;
  std::memcpy(&crc, bytes.data() + bytes.size() - 4, 4);
  if (crc != Crc32c(bytes.data(), bytes.size() - 4)) return bad;

  LookupResult result;
  result.shard_first = head.shard_first;
  result.shard_count = head.shard_count;
  result.lease_time = absl::Milliseconds(head.lease_ms);
  result.lease_shortened = (head.flags & kFlagShortened) != 0;
  result.ns = NamespaceId::FromBytes(head.ns);
  bytes.remove_prefix(sizeof(head));
  Take(head.stores, &bytes, &result.store_ids);
  Take(head.leases, &bytes, &result.leases);
  Take(head.keys, &bytes, &result.ids);
  Take(chunks, &bytes, &result.stores);
  for (const uint16_t store : result.stores) {
    if (store != LookupResult::kNoStore && store >= head.stores) return bad;
  }
  FillPresence(&result);
  return result;
}

std::string LookupResult::Serialize() const { return SerializeTicket(*this); }

}  // namespace cistern
