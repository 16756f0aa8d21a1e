// How namespaces and caller keys become 16-byte ids.
//
//   namespace id = first 16 bytes of SHA-256("cistern-ns-1" || len(tenant) || tenant
//                                            || len(name) || name || len(fp) || fp)
//                  with every len a little-endian u32
//   seed (64)    = namespace id (16) || namespace secret (32) || 16 zero bytes
//   key id       = first 16 bytes of SHA-256(seed || u16 little-endian length || key)
//
// The seed is exactly one SHA-256 block, so its midstate is kept and each key costs one or two
// compressions.
#ifndef CISTERN_BASE_KEY_HASH_H_
#define CISTERN_BASE_KEY_HASH_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace cistern {

NamespaceId DeriveNamespaceId(std::string_view tenant, std::string_view name,
                              std::string_view fingerprint);

// First 4 bytes of SHA-256(tenant) as a little-endian number; 0 for "".
uint32_t TenantTag(std::string_view tenant);

// Turns caller keys of one namespace into key ids. Immutable after construction: thread-safe.
class KeyHasher {
 public:
  using Secret = std::array<uint8_t, 32>;
  // `secret` is all zeros until tenants exist.
  explicit KeyHasher(const NamespaceId& ns, const Secret& secret = Secret{});

  // Precondition: key.size() <= kMaxKeyBytes (callers' keys are checked by the client library).
  KeyId Hash(std::string_view key) const;
  void HashMany(absl::Span<const std::string_view> keys, KeyId* out) const;

 private:
  // SHA-256 state after the seed block: eight words, kept apart from OpenSSL's type so that this
  // header needs none of it.
  std::array<uint32_t, 8> midstate_;
};

// HMAC-SHA-256(key, data): 32 bytes. For the handshake proofs.
std::array<uint8_t, 32> HmacSha256(std::string_view key, std::string_view data);
// Compares in time that does not depend on where they differ.
bool ConstantTimeEqual(std::string_view a, std::string_view b);
// Cryptographically strong random bytes; aborts the process when the system has none.
void RandomBytes(void* out, size_t n);
template <typename IdType>
IdType RandomId() {
  IdType id;
  RandomBytes(id.bytes.data(), id.bytes.size());
  return id;
}

}  // namespace cistern

#endif  // CISTERN_BASE_KEY_HASH_H_
