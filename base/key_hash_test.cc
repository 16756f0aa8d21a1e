// Expected ids were made with Python's hashlib and hmac by the formulas of docs/formats/keys.md.
#include "base/key_hash.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/test_util.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

const NamespaceId kNamespace =
    DeriveNamespaceId("", "llama-3-70b", "rev=1a2b;dtype=bf16;layout=1;tokens=16;tp=8");

std::string Hex(const std::array<uint8_t, 32>& bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

TEST(NamespaceIdTest, IsTheDocumentedHash) {
  EXPECT_EQ(kNamespace.ToHex(), "e18647c96de99a72a88fb5e1984d1c31");
  EXPECT_EQ(DeriveNamespaceId("acme", "m", "").ToHex(), "b42ed6280c8b9156039d11feb83cc568");
  EXPECT_EQ(DeriveNamespaceId("", "", "").ToHex(), "0d8057784bf289c52b00c2d271fd4df4");
}

TEST(NamespaceIdTest, BytesThatMoveBetweenFieldsGiveAnotherId) {
  EXPECT_EQ(DeriveNamespaceId("ab", "c", "").ToHex(), "d9dd772d8417b22153b142a7887722e5");
  EXPECT_EQ(DeriveNamespaceId("a", "bc", "").ToHex(), "7f92b46672693f6beedc5cea6bb65d59");
}

TEST(TenantTagTest, IsZeroForNoTenantElseTheDocumentedHash) {
  EXPECT_EQ(TenantTag(""), 0u);
  EXPECT_EQ(TenantTag("acme"), 2'905'811'842u);
}

TEST(KeyHasherTest, GivesTheIdsOfTheWorkedExample) {
  const KeyHasher hasher(kNamespace);
  EXPECT_EQ(hasher.Hash("block-0").ToHex(), "59a3b8c7ec804d2972c3d73edb9afcef");
  EXPECT_EQ(hasher.Hash("block-1").ToHex(), "d631bd43b6b3f932df240f7653408a7b");
}

TEST(KeyHasherTest, TheSecretChangesEveryId) {
  KeyHasher::Secret secret;
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<uint8_t>(i + 1);
  EXPECT_EQ(KeyHasher(kNamespace, secret).Hash("block-0").ToHex(),
            "1d63eaf6449b55d2775287e0f0a8bea1");
}

// Around each length at which the padding needs another block: 53 to 54 (the length's 8 bytes no
// longer fit), 62 (the 2 + 62 bytes fill a block), and the same one block later.
TEST(KeyHasherTest, PadsKeysOfEveryLength) {
  const std::pair<size_t, const char*> kCases[] = {
      {0, "d6794577e31aee94cb2f7a0902dd6255"},    {1, "611250f58c5a7b8df04521bb93f3030f"},
      {52, "bad574d518c2230393e79447e055d328"},   {53, "952b1003fb8e6d4dbe308ae9f77c33cf"},
      {54, "ad3b306d5c9561a393df73ba5c13e355"},   {55, "15969d37f62b0be6fb7562c923c30565"},
      {60, "c1ed571718d1acdbf7041a4fef278489"},   {61, "540e9b04987190b829041e29842b5c36"},
      {62, "82ace96e875c11b817c1f78e64a2b9a3"},   {63, "c01d79314fe24b1995bc76f8dd94c86d"},
      {64, "9ec5315418092fa65b60d3d7a52e80a7"},   {65, "af3c021af5fd7b4d17b810c0448123ee"},
      {117, "4a110a6aaa7270db38a377a25e5e2f46"},  {118, "1862bb39e0c32ce666fe61ee9ab0503f"},
      {125, "0d1334ec75afc52b8ef9fd0e45358c22"},  {126, "56aa5be1540c1d9bafddb86b8a719e9f"},
      {127, "96f7b8dc770e32e4a7774a32268da5b7"},  {1000, "89cae65f36f817ed2b5c6f09b22f3f73"},
      {4096, "ac2a6fca59898ec787eb0652b72cf854"},
  };
  const KeyHasher hasher(kNamespace);
  for (const auto& [length, hex] : kCases) {
    std::string key(length, '\0');
    for (size_t i = 0; i < length; ++i) key[i] = static_cast<char>(i * 7 + length);
    EXPECT_EQ(hasher.Hash(key).ToHex(), hex) << length;
  }
}

TEST(KeyHasherTest, ManyAreTheSameAsEach) {
  const KeyHasher hasher(kNamespace);
  const std::vector<std::string_view> keys = {"block-0", "block-1"};
  KeyId ids[2];
  hasher.HashMany(keys, ids);
  EXPECT_EQ(ids[0].ToHex(), "59a3b8c7ec804d2972c3d73edb9afcef");
  EXPECT_EQ(ids[1].ToHex(), "d631bd43b6b3f932df240f7653408a7b");
}

TEST(KeyHasherDeathTest, KeysBeyondTheLimitAreOurBug) {
  const KeyHasher hasher(kNamespace);
  EXPECT_DEATH(hasher.Hash(std::string(kMaxKeyBytes + 1, 'k')), "check failed");
}

// RFC 4231, test cases 1, 2 and 6.
TEST(HmacSha256Test, GivesTheValuesOfRfc4231) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'),
                           "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacSha256Test, TakesEmptyKeysAndData) {
  EXPECT_EQ(Hex(HmacSha256(std::string_view(), std::string_view())),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(ConstantTimeEqualTest, ComparesLengthAndBytes) {
  EXPECT_TRUE(ConstantTimeEqual("", ""));
  EXPECT_TRUE(ConstantTimeEqual("abc", "abc"));
  EXPECT_FALSE(ConstantTimeEqual("abc", "abd"));
  EXPECT_FALSE(ConstantTimeEqual("abc", "ab"));
}

[[noreturn]] void DrawRandomBytesInASandbox() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {std::size(steps), steps};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(2);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) _exit(3);
  uint8_t bytes[64] = {};
  RandomBytes(bytes, sizeof(bytes));
  const bool drawn =
      std::any_of(std::begin(bytes), std::end(bytes), [](uint8_t byte) { return byte != 0; });
  _exit(drawn ? 0 : 4);
}

// A process that we are a library of may be in a sandbox without that system call.
TEST(RandomBytesTest, ComeFromTheDeviceWhereTheCallIsNotLetThrough) {
  EXPECT_EXIT(DrawRandomBytesInASandbox(), ::testing::ExitedWithCode(0), "");
}

TEST(RandomIdTest, TwoAreNeverTheSame) { EXPECT_NE(RandomId<StoreId>(), RandomId<StoreId>()); }

}  // namespace
}  // namespace cistern
