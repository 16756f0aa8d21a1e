// The frame decoder and reader against arbitrary bytes, arbitrarily cut.
//
// LLVMFuzzerTestOneInput is the target for a libFuzzer build; the test feeds it a seeded corpus of
// random bytes and of good streams with random damage.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/status.h"
#include "gtest/gtest.h"
#include "transport/frame_reader.h"

namespace cistern::transport {
namespace {

constexpr uint32_t kMaxMeta = 5'000;
constexpr uint64_t kMaxPayload = 100'000;

// Checks what it is told; decides by the bytes of the input what to do.
class Checker final : public FrameReceiver {
 public:
  explicit Checker(uint8_t mood) : mood_(mood) {}
  bool ReadyForFrame(const FrameHeader& header) override {
    CISTERN_CHECK(header.meta_bytes <= kMaxMeta && header.payload_bytes <= kMaxPayload);
    return (mood_ & 1) == 0 || ++asked_ % 3 != 0;
  }
  absl::Status OnFrame(const FrameHeader& header, std::string_view meta) override {
    CISTERN_CHECK(!in_frame_ && meta.size() == header.meta_bytes);
    CISTERN_CHECK(Crc32c(meta.data(), meta.size()) == header.meta_crc);
    in_frame_ = true;
    left_ = header.payload_bytes;
    ++frames_;
    discard_ = (mood_ & 2) != 0 && frames_ % 2 == 0;
    return absl::OkStatus();
  }
  Take PayloadBuffers(size_t max_bytes, size_t, std::vector<iovec>* out, absl::Status*) override {
    CISTERN_CHECK(in_frame_ && max_bytes > 0);
    if (discard_) return Take::kDiscard;
    if ((mood_ & 4) != 0 && ++asked_ % 4 == 0) return Take::kPause;
    CISTERN_CHECK(max_bytes <= left_);
    offered_ = std::min<size_t>(max_bytes, sizeof(memory_));
    out->push_back({memory_, offered_});
    return Take::kBuffers;
  }
  absl::Status PayloadLanded(size_t bytes) override {
    CISTERN_CHECK(bytes > 0 && bytes <= offered_);
    left_ -= bytes;
    return absl::OkStatus();
  }
  absl::Status OnFrameEnd() override {
    CISTERN_CHECK(in_frame_ && (left_ == 0 || discard_));
    in_frame_ = false;
    return (mood_ & 8) != 0 && frames_ > 3 ? absl::CancelledError("enough") : absl::OkStatus();
  }

 private:
  const uint8_t mood_;
  int asked_ = 0;
  int frames_ = 0;
  bool in_frame_ = false;
  bool discard_ = false;
  uint64_t left_ = 0;
  size_t offered_ = 0;
  uint8_t memory_[700];
};

}  // namespace
}  // namespace cistern::transport

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern::transport;  // NOLINT: the target's name is C
  if (size < 2) return 0;
  Checker checker(data[0]);
  FrameReader::Options options;
  options.max_meta_bytes = kMaxMeta;
  options.max_payload_bytes = kMaxPayload;
  options.head_bytes = 64 + data[1];
  options.payload_read_bytes = 500;
  FrameReader reader(options, &checker);
  uint32_t cuts = data[1] + 1;
  size_t fed = 2;
  while (fed < size) {
    if (reader.paused() && !reader.Resume().ok()) return 0;
    std::vector<iovec> pieces;
    if (!reader.NextRead(&pieces).ok()) return 0;
    if (pieces.empty()) continue;  // paused again: Resume gets on
    cuts = cuts * 1664525u + 1013904223u;
    size_t want = std::min<size_t>(1 + (cuts >> 20), size - fed);
    size_t got = 0;
    for (const iovec& piece : pieces) {
      const size_t n = std::min(piece.iov_len, want);
      std::memcpy(piece.iov_base, data + fed + got, n);
      got += n;
      want -= n;
    }
    fed += got;
    if (!reader.Advance(got).ok()) return 0;
  }
  return 0;
}

namespace cistern::transport {
namespace {

constexpr unsigned kSeed = 20240601;

TEST(FrameFuzzTest, RandomBytes) {
  std::mt19937 random(kSeed);
  for (int i = 0; i < 3'000; ++i) {
    std::string input(random() % 400, '\0');
    for (char& c : input) c = static_cast<char>(random());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
}

TEST(FrameFuzzTest, DamagedStreams) {
  std::mt19937 random(kSeed);
  for (int i = 0; i < 1'500; ++i) {
    std::string input{static_cast<char>(random()), static_cast<char>(random())};
    for (unsigned frame = 0; frame < 1 + random() % 8; ++frame) {
      const std::string meta(random() % (random() % 4 == 0 ? 5'000 : 60), 'm');
      FrameHeader header;
      header.type = static_cast<FrameType>(random() % 48);
      header.request_id = random() % 5;
      header.meta_bytes = static_cast<uint32_t>(meta.size());
      header.meta_crc = Crc32c(meta.data(), meta.size());
      header.payload_bytes = random() % 3'000;
      uint8_t bytes[kFrameHeaderBytes];
      EncodeFrameHeader(header, bytes);
      input.append(reinterpret_cast<const char*>(bytes), sizeof(bytes));
      input += meta;
      input.append(header.payload_bytes, 'p');
    }
    for (unsigned hits = random() % 3; hits > 0; --hits) {
      input[2 + random() % (input.size() - 2)] ^= static_cast<char>(1 << random() % 8);
    }
    if (random() % 4 == 0) input.resize(2 + random() % (input.size() - 2));
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
}

}  // namespace
}  // namespace cistern::transport
