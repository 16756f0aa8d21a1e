// OpenSSL 3 deprecates the low-level SHA-256 calls, but only they let us start from a saved
// midstate: 54 ns a key, against 159 for a copied EVP context and 439 for a one-shot EVP call.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/key_hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/status.h"

namespace cistern {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kBlockBytes = SHA256_CBLOCK;
static_assert(kBlockBytes == 64);

void AppendLengthPrefixed(std::string_view field, std::string* out) {
  const uint32_t length = static_cast<uint32_t>(field.size());
  out->append(reinterpret_cast<const char*>(&length), sizeof(length));
  out->append(field);
}

std::array<uint8_t, SHA256_DIGEST_LENGTH> Sha256(std::string_view data) {
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const uint8_t*>(data.data()), data.size(), digest.data());
  return digest;
}

}  // namespace

NamespaceId DeriveNamespaceId(std::string_view tenant, std::string_view name,
                              std::string_view fingerprint) {
  std::string message = "cistern-ns-1";
  AppendLengthPrefixed(tenant, &message);
  AppendLengthPrefixed(name, &message);
  AppendLengthPrefixed(fingerprint, &message);
  return NamespaceId::FromBytes(Sha256(message).data());
}

uint32_t TenantTag(std::string_view tenant) {
  if (tenant.empty()) return 0;
  const auto digest = Sha256(tenant);
  uint32_t tag;
  std::memcpy(&tag, digest.data(), sizeof(tag));
  return tag;
}

KeyHasher::KeyHasher(const NamespaceId& ns, const Secret& secret) {
  std::array<uint8_t, kBlockBytes> seed{};
  std::memcpy(seed.data(), ns.bytes.data(), ns.bytes.size());
  std::memcpy(seed.data() + ns.bytes.size(), secret.data(), secret.size());
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Transform(&context, seed.data());
  std::copy(std::begin(context.h), std::end(context.h), midstate_.begin());
}

KeyId KeyHasher::Hash(std::string_view key) const {
  CISTERN_CHECK(key.size() <= kMaxKeyBytes);
  // Only the state words: SHA256_Transform uses nothing else of the context.
  SHA256_CTX context;
  std::copy(midstate_.begin(), midstate_.end(), std::begin(context.h));

  // The message after the seed is {u16 length, key}, padded by hand: 0x80, zeros, and the length
  // of everything (seed included) in bits, big-endian, in the last 8 bytes of the last block.
  uint8_t block[kBlockBytes];
  const uint16_t length = static_cast<uint16_t>(key.size());
  std::memcpy(block, &length, sizeof(length));
  size_t used = sizeof(length);
  const char* next = key.data();
  size_t left = key.size();
  while (left >= kBlockBytes - used) {
    const size_t n = kBlockBytes - used;
    std::memcpy(block + used, next, n);
    SHA256_Transform(&context, block);
    next += n;
    left -= n;
    used = 0;
  }
  if (left > 0) std::memcpy(block + used, next, left);
  used += left;
  block[used++] = 0x80;
  if (used > kBlockBytes - sizeof(uint64_t)) {
    std::memset(block + used, 0, kBlockBytes - used);
    SHA256_Transform(&context, block);
    used = 0;
  }
  std::memset(block + used, 0, kBlockBytes - sizeof(uint64_t) - used);
  const uint64_t bits =
      __builtin_bswap64(8 * (uint64_t{kBlockBytes} + sizeof(length) + key.size()));
  std::memcpy(block + kBlockBytes - sizeof(bits), &bits, sizeof(bits));
  SHA256_Transform(&context, block);

  KeyId id;
  for (size_t i = 0; i < KeyId::kBytes / sizeof(uint32_t); ++i) {
    const uint32_t word = __builtin_bswap32(context.h[i]);
    std::memcpy(id.bytes.data() + i * sizeof(word), &word, sizeof(word));
  }
  return id;
}

void KeyHasher::HashMany(absl::Span<const std::string_view> keys, KeyId* out) const {
  for (const std::string_view key : keys) *out++ = Hash(key);
}

std::array<uint8_t, 32> HmacSha256(std::string_view key, std::string_view data) {
  std::array<uint8_t, 32> mac;
  unsigned int mac_bytes = 0;
  // HMAC fails for a null key, even one of no bytes.
  const char* key_bytes = key.empty() ? "" : key.data();
  const uint8_t* result =
      HMAC(EVP_sha256(), key_bytes, static_cast<int>(key.size()),
           reinterpret_cast<const uint8_t*>(data.data()), data.size(), mac.data(), &mac_bytes);
  CISTERN_CHECK(result != nullptr && mac_bytes == mac.size());
  return mac;
}

bool ConstantTimeEqual(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void RandomBytes(void* out, size_t n) {
  auto* next = static_cast<uint8_t*>(out);
  while (n > 0) {
    const ssize_t got = getrandom(next, n, 0);
    if (got < 0) {
      CISTERN_CHECK(errno == EINTR);
      continue;
    }
    next += got;
    n -= static_cast<size_t>(got);
  }
}

}  // namespace cistern
