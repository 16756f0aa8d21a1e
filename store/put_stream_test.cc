// A put's stream, however its bytes come: into the slots, or out of memory that it copies from.
#include "store/put_stream.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "store/chunk_store_testing.h"

namespace cistern::store {
namespace {

enum class Way { kLanded, kTaken, kMixed };

class PutStreamTest : public ChunkStoreTestBase, public testing::WithParamInterface<Way> {
 protected:
  void SetUp() override { Open(); }

  // Chunk `n` as it is sent, digests behind it.
  static std::string StreamOf(uint64_t n, const PartLayout& layout, bool digests = true) {
    const std::string bytes = PatternBytes(n, layout.length);
    std::string stream = bytes;
    for (uint32_t i = 0; digests && i < layout.count; ++i) {
      const PartDigest digest = DigestOf(bytes.data() + layout.PartBegin(i), layout.PartBytes(i));
      stream.append(reinterpret_cast<const char*>(&digest), sizeof(digest));
    }
    return stream;
  }

  static void Feed(PutStream* stream, std::string_view bytes, size_t step) {
    for (int turn = 0; !bytes.empty(); ++turn) {
      const std::string memory(bytes.substr(0, step));
      bytes.remove_prefix(memory.size());
      if (GetParam() == Way::kTaken || (GetParam() == Way::kMixed && turn % 2 == 0)) {
        size_t taken = 0;
        ASSERT_OK(stream->TakeFrom(memory.data(), memory.size(), &taken));
        ASSERT_EQ(taken, memory.size());
        continue;
      }
      std::vector<iovec> buffers;
      stream->NextBuffers(memory.size(), 1000, &buffers);
      size_t landed = 0;
      for (const iovec& buffer : buffers) {
        std::memcpy(buffer.iov_base, memory.data() + landed, buffer.iov_len);
        landed += buffer.iov_len;
      }
      ASSERT_EQ(landed, memory.size());
      ASSERT_OK(stream->Landed(landed));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, PutStreamTest,
                         testing::Values(Way::kLanded, Way::kTaken, Way::kMixed));

TEST_P(PutStreamTest, ChunksLandAndAreHeldToTheirDigests) {
  for (const size_t step : {size_t{1} << 30, size_t{65'536}, size_t{40'000}, size_t{1'237}}) {
    PutOptions options;
    options.part_bytes = 65'536;
    std::vector<PutAnswer> answers;
    answers.push_back(Begin(1, 300'001, options));
    answers.push_back(Begin(2, 300'001, options));
    answers.push_back(Begin(3, 4'096, options));
    std::vector<PutStreamItem> items;
    std::string bytes;
    for (uint64_t n = 1; n <= 3; ++n) {
      PutSlot& slot = answers[n - 1].slot;
      ASSERT_TRUE(slot);
      items.push_back({.layout = slot.layout(), .slot = &slot});
      bytes += StreamOf(n, slot.layout());
    }
    // 300,001 bytes in parts of 64 KiB are 5: the second chunk's third part gets a wrong bit.
    bytes[300'001 + 5 * 8 + 140'000] ^= 1;
    PutStream stream(items, /*digests=*/true);
    ASSERT_EQ(stream.total_bytes(), bytes.size());
    Feed(&stream, bytes, step);
    EXPECT_TRUE(stream.items()[0].good && !stream.items()[0].bad);
    EXPECT_TRUE(stream.items()[1].bad && !stream.items()[1].good);
    EXPECT_TRUE(stream.items()[2].good && !stream.items()[2].bad);
    const absl::Span<char> payload = answers[0].slot.payload();
    EXPECT_EQ(std::string(payload.data(), payload.size()), PatternBytes(1, 300'001));
    for (PutAnswer& answer : answers) answer.slot.Abort();
  }
}

TEST_P(PutStreamTest, WhatIsNotWantedIsReadPast) {
  PutAnswer answer = Begin(2, 100'000);
  ASSERT_TRUE(answer.slot);
  const PartLayout layout = answer.slot.layout();
  PutStream stream(
      {{.layout = layout}, {.layout = layout, .slot = &answer.slot}, {.layout = layout}},
      /*digests=*/true);
  Feed(&stream, StreamOf(1, layout) + StreamOf(2, layout) + StreamOf(3, layout), 30'000);
  EXPECT_TRUE(stream.items()[1].good);
  EXPECT_FALSE(stream.items()[0].good || stream.items()[0].bad);
  EXPECT_FALSE(stream.items()[2].good || stream.items()[2].bad);
}

TEST_P(PutStreamTest, WithoutDigestsBytesAreTakenAsTheyCome) {
  PutAnswer answer = Begin(1, 100'000);
  ASSERT_TRUE(answer.slot);
  PutStream stream({{.layout = answer.slot.layout(), .slot = &answer.slot}}, /*digests=*/false);
  Feed(&stream, StreamOf(1, answer.slot.layout(), /*digests=*/false), 30'000);
  EXPECT_TRUE(stream.items()[0].good);
  const absl::Span<char> payload = answer.slot.payload();
  EXPECT_EQ(std::string(payload.data(), payload.size()), PatternBytes(1, 100'000));
}

TEST_P(PutStreamTest, NothingIsTakenBeyondTheEnd) {
  PutAnswer answer = Begin(1, 4'096);
  ASSERT_TRUE(answer.slot);
  PutStream stream({{.layout = answer.slot.layout(), .slot = &answer.slot}}, /*digests=*/true);
  Feed(&stream, StreamOf(1, answer.slot.layout()), 1'000);
  size_t taken = 9;
  EXPECT_OK(stream.TakeFrom("x", 1, &taken));
  EXPECT_EQ(taken, 0u);
}

}  // namespace
}  // namespace cistern::store
