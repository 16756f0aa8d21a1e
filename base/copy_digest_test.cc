// Held against the library's own XXH3, which shares no code with it.
#include "base/copy_digest.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

std::string Noise(size_t bytes, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::string out(bytes + 8, '\0');
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(out.data() + i, &word, 8);
  }
  out.resize(bytes);
  return out;
}

class CopyDigestTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!CopyDigest::Supported()) GTEST_SKIP() << "a processor without AVX2";
  }
};

// A 64-byte aligned place with room around it, to see whether more is written than should be.
class Target {
 public:
  Target(size_t bytes, size_t skew)
      : memory_(static_cast<char*>(std::aligned_alloc(64, (bytes + skew + 191) / 64 * 64)),
                &std::free),
        data_(memory_.get() + 64 + skew),
        bytes_(bytes) {
    data_[-1] = data_[bytes] = '\x5A';
  }
  char* data() const { return data_; }
  bool Holds(const std::string& what) const {
    return what.size() == bytes_ && std::memcmp(data_, what.data(), bytes_) == 0 &&
           data_[-1] == '\x5A' && data_[bytes_] == '\x5A';
  }

 private:
  const std::unique_ptr<char, decltype(&std::free)> memory_;
  char* const data_;
  const size_t bytes_;
};

TEST_F(CopyDigestTest, IsTheLibrarysDigestOfEveryLengthAtOnce) {
  std::vector<size_t> lengths;
  for (size_t n = 0; n <= 2200; ++n) lengths.push_back(n);
  for (const size_t n : {4095, 4096, 4097, 32767, 32768, 33791, 33792, 33793, 100'000, 262'144}) {
    lengths.push_back(n);
  }
  const std::string noise = Noise(300'000, 1);
  for (const size_t n : lengths) {
    const std::string bytes = noise.substr(7, n);
    const Target target(n, n % 3);
    CopyDigest digest;
    digest.CopyUpdate(target.data(), bytes.data(), n);
    ASSERT_EQ(digest.Finish(), DigestOf(bytes.data(), n)) << n;
    ASSERT_TRUE(target.Holds(bytes)) << n;
    CopyDigest plain;
    plain.Update(bytes.data(), n);
    ASSERT_EQ(plain.Finish(), DigestOf(bytes.data(), n)) << n;
  }
}

TEST_F(CopyDigestTest, PiecesOfAnySizeMakeTheSame) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const size_t n = random() % 200'000;
    const std::string bytes = Noise(n, static_cast<uint32_t>(round));
    const Target target(n, random() % 64);
    CopyDigest digest;
    const size_t longest = size_t{1} << (random() % 18);
    for (size_t at = 0; at < n;) {
      const size_t piece = std::min<size_t>(n - at, 1 + random() % longest);
      if (random() % 4 == 0) {
        std::memcpy(target.data() + at, bytes.data() + at, piece);
        digest.Update(bytes.data() + at, piece);
      } else {
        digest.CopyUpdate(target.data() + at, bytes.data() + at, piece);
      }
      at += piece;
    }
    ASSERT_EQ(digest.Finish(), DigestOf(bytes.data(), n)) << "round " << round << ", " << n;
    ASSERT_TRUE(target.Holds(bytes)) << "round " << round;
  }
}

TEST_F(CopyDigestTest, IsUsedAnewAfterAReset) {
  const std::string a = Noise(5000, 1);
  const std::string b = Noise(3000, 2);
  std::string to(5000, '\0');
  CopyDigest digest;
  digest.CopyUpdate(to.data(), a.data(), a.size());
  digest.Reset();
  digest.CopyUpdate(to.data(), b.data(), b.size());
  EXPECT_EQ(digest.Finish(), DigestOf(b.data(), b.size()));
  // Looking does not end it.
  digest.CopyUpdate(to.data(), a.data(), 100);
  const std::string both = b + a.substr(0, 100);
  EXPECT_EQ(digest.Finish(), DigestOf(both.data(), both.size()));
}

// The source of a copy is memory that another process writes: here by a second mapping of it.
TEST_F(CopyDigestTest, DigestsWhatItCopiedWhileTheSourceChanges) {
  constexpr size_t kBytes = 100'000;
  const int fd = memfd_create("source", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, kBytes), 0);
  void* const theirs = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void* const ours = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_TRUE(theirs != MAP_FAILED && ours != MAP_FAILED);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int value = 0; !stop; ++value) std::memset(theirs, value, kBytes);
  });
  const Target target(kBytes, 0);
  for (int round = 0; round < 500; ++round) {
    CopyDigest digest;
    for (size_t at = 0; at < kBytes; at += 33'333) {
      digest.CopyUpdate(target.data() + at, static_cast<const char*>(ours) + at,
                        std::min<size_t>(33'333, kBytes - at));
    }
    ASSERT_EQ(digest.Finish(), DigestOf(target.data(), kBytes)) << round;
  }
  stop = true;
  writer.join();
  munmap(theirs, kBytes);
  munmap(ours, kBytes);
  close(fd);
}

}  // namespace
}  // namespace cistern
