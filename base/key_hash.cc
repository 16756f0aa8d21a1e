// OpenSSL 3 deprecates the low-level SHA-256 calls, but only they let us start from a saved
// midstate: 54 ns a key, against 159 for a copied EVP context and 439 for a one-shot EVP call. And
// only they cannot fail: the others (SHA256() and HMAC() too) fetch the algorithm from a provider,
// which the configuration of the process that we are in may not offer (OPENSSL_CONF).
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/key_hash.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/random.h>
#include <unistd.h>

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

using Digest = std::array<uint8_t, SHA256_DIGEST_LENGTH>;

// Of `first` and `second`, one behind the other.
Digest Sha256(std::string_view first, std::string_view second = {}) {
  Digest digest;
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, first.data(), first.size());
  SHA256_Update(&context, second.data(), second.size());
  SHA256_Final(digest.data(), &context);
  return digest;
}

std::string_view View(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// The kernel's random bytes where getrandom() is not let through (a sandbox). False: there are
// none.
bool ReadUrandom(uint8_t* out, size_t n) {
  const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  while (n > 0) {
    const ssize_t got = read(fd, out, n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    out += got;
    n -= static_cast<size_t>(got);
  }
  close(fd);
  return n == 0;
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

// RFC 2104.
std::array<uint8_t, 32> HmacSha256(std::string_view key, std::string_view data) {
  std::string inner(kBlockBytes, '\x36');
  std::string outer(kBlockBytes, '\x5c');
  Digest short_key;
  if (key.size() > kBlockBytes) {
    short_key = Sha256(key);
    key = View(short_key);
  }
  for (size_t i = 0; i < key.size(); ++i) {
    inner[i] = static_cast<char>(inner[i] ^ key[i]);
    outer[i] = static_cast<char>(outer[i] ^ key[i]);
  }
  const Digest digest = Sha256(inner, data);
  return Sha256(outer, View(digest));
}

bool ConstantTimeEqual(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void RandomBytes(void* out, size_t n) {
  auto* next = static_cast<uint8_t*>(out);
  while (n > 0) {
    const ssize_t got = getrandom(next, n, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      // Without chance there is no proof of a token and no name that nobody else has.
      CISTERN_CHECK(ReadUrandom(next, n));
      return;
    }
    next += got;
    n -= static_cast<size_t>(got);
  }
}

}  // namespace cistern
