// Heads, part tables and bytes come from stores: whatever they are, no byte lands outside the
// caller's memory, no memory is taken that the caller's does not account for, and nothing is called
// verified, or in place, that is not what was put.
//
// LLVMFuzzerTestOneInput is the target for a libFuzzer build; the test feeds it a seeded corpus of
// random bytes and of good answers with random damage.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/test_util.h"
#include "client/get_head.h"
#include "proto/data.pb.h"

namespace cistern {
namespace {

constexpr size_t kGuard = 64;
constexpr char kCanary = '\x5a';

// What a request asks for, the memory it has for it, and what was put.
struct Request {
  GetBatch batch;
  std::vector<std::string> chunks;
  std::vector<uint32_t> part_bytes;
  std::vector<std::string> memory;  // a guard, the target, a guard
  std::vector<std::vector<Span>> spans;

  void Add(uint8_t seed, uint32_t length, uint32_t parts_of, uint64_t target_bytes,
           uint64_t range_offset = 0, uint64_t range_bytes = 0) {
    GetTarget target;
    target.name.id.bytes[3] = seed;
    target.range_offset = range_offset;
    target.range_bytes = range_bytes;
    chunks.push_back(PatternBytes(seed, length));
    part_bytes.push_back(parts_of);
    memory.push_back(std::string(target_bytes + 2 * kGuard, kCanary));
    batch.targets.push_back(target);
  }
  // Once all are added.
  void Cut(uint64_t piece) {
    for (size_t i = 0; i < memory.size(); ++i) {
      std::vector<Span>& own = spans.emplace_back();
      const size_t end = memory[i].size() - kGuard;
      for (size_t at = kGuard; at < end; at += piece) {
        own.push_back({memory[i].data() + at, std::min<uint64_t>(piece, end - at)});
      }
    }
    for (size_t i = 0; i < memory.size(); ++i) {
      batch.targets[i].memory = MemoryRef(spans[i], memory[i].size() - 2 * kGuard);
    }
  }
};

// Of every kind, by both orders.
Request MakeRequest(unsigned kind) {
  Request r;
  r.batch.order = (kind & 1) != 0 ? GetOrder::kByPart : GetOrder::kByChunk;
  switch (kind / 2 % 4) {
    case 0:
      r.Add(1, 20'000, 4096, 20'000);
      r.Add(2, 4'096, 0, 4'096);
      r.Add(3, 30'001, 8192, 30'001);
      break;
    case 1:
      r.batch.selection = {GetSelection::Kind::kParts, 1, 2, false};
      r.Add(1, 20'000, 4096, 8'192);
      r.Add(2, 9'000, 4096, 8'192);
      r.batch.selection.any_length = true;
      break;
    case 2:
      r.batch.selection.kind = GetSelection::Kind::kRange;
      r.Add(1, 20'000, 4096, 9'000, 4'000, 9'000);
      r.Add(2, 20'000, 4096, 8'192, 4'096, 8'192);
      break;
    case 3:
      r.batch.selection.any_length = true;
      r.Add(1, 20'000, 4096, 40'000);
      r.Add(2, 5'000, 0, 5'000);
      r.batch.targets[1].check = false;
      break;
  }
  r.Cut(1 + kind * 997 % 5'000);
  return r;
}

// The part of the chunk that the request is after, worked out by hand.
std::pair<uint64_t, uint64_t> RangeOf(const Request& r, size_t i) {
  const GetTarget& target = r.batch.targets[i];
  const uint64_t length = r.chunks[i].size();
  switch (r.batch.selection.kind) {
    case GetSelection::Kind::kWhole:
      return {0, length};
    case GetSelection::Kind::kParts:
      return {uint64_t{r.part_bytes[i]} * 1, std::min(length, uint64_t{r.part_bytes[i]} * 3)};
    case GetSelection::Kind::kRange:
      return {target.range_offset, target.range_offset + target.range_bytes};
  }
  return {};
}

uint32_t PartBytes(const Request& r, size_t i) {
  return static_cast<uint32_t>(PartLayout::Make(r.chunks[i].size(), r.part_bytes[i])->part_bytes);
}

// A good answer.
struct Answer {
  wire::GetHead head;
  std::string stream;
};
Answer MakeAnswer(const Request& r) {
  Answer a;
  std::string tables;
  std::vector<std::string> table_of;
  uint64_t most_parts = 0;
  const auto put = [](std::string* column, auto value) {
    column->append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (size_t i = 0; i < r.chunks.size(); ++i) {
    const std::string& bytes = r.chunks[i];
    const uint32_t part = PartBytes(r, i);
    std::vector<PartDigest> digests;
    for (size_t at = 0; at < bytes.size(); at += part) {
      digests.push_back(DigestOf(bytes.data() + at, std::min<size_t>(part, bytes.size() - at)));
    }
    most_parts = std::max<uint64_t>(most_parts, digests.size());
    put(a.head.mutable_statuses(), uint8_t{0});
    put(a.head.mutable_lengths(), static_cast<uint32_t>(bytes.size()));
    put(a.head.mutable_part_bytes(), part);
    put(a.head.mutable_roots(), RootDigest(digests, bytes.size(), r.batch.targets[i].name));
    put(a.head.mutable_versions(), uint64_t{7});
    // Every selection here has a whole part inside.
    table_of.emplace_back(reinterpret_cast<const char*>(digests.data()), 8 * digests.size());
    tables += table_of.back();
  }
  const auto piece = [&](size_t i, uint64_t from, uint64_t to) {
    const auto [begin, end] = RangeOf(r, i);
    const uint64_t b = std::max(begin, from);
    const uint64_t e = std::min(end, to);
    return b < e ? r.chunks[i].substr(b, e - b) : std::string();
  };
  if (r.batch.order == GetOrder::kByChunk) {
    for (size_t i = 0; i < r.chunks.size(); ++i) a.stream += table_of[i] + piece(i, 0, UINT64_MAX);
  } else {
    a.stream = tables;
    for (uint64_t p = 0; p < most_parts; ++p) {
      for (size_t i = 0; i < r.chunks.size(); ++i) {
        a.stream += piece(i, p * PartBytes(r, i), (p + 1) * PartBytes(r, i));
      }
    }
  }
  a.head.set_payload_bytes(a.stream.size());
  return a;
}

// Whether bytes [from, to) of the target's chunk are in place.
bool InPlace(const Request& r, size_t i, uint64_t to) {
  const auto [begin, end] = RangeOf(r, i);
  const uint64_t bytes = std::min(to, end) - begin;
  return r.memory[i].compare(kGuard, bytes, r.chunks[i], begin, bytes) == 0;
}

struct Listener : GetPayload::Listener {
  Listener(const Request& request, const GetHeadResult& result)
      : r(request), head(result), parts(result.chunks.size()), bad(result.chunks.size()) {}
  void OnParts(size_t chunk, uint32_t n) override {
    const GetChunk& c = head.chunks[chunk];
    CISTERN_CHECK(n > parts[chunk] && n <= c.touched_end() && !bad[chunk]);
    parts[chunk] = n;
    // Those under a digest, at least, are what was put.
    if (c.check && c.table && c.begin % c.layout.part_bytes == 0 &&
        n <= c.first_part + c.part_count) {
      CISTERN_CHECK(InPlace(r, head.targets[chunk], n * c.layout.part_bytes));
    }
  }
  void OnBad(size_t chunk) override {
    CISTERN_CHECK(!bad[chunk]);
    bad[chunk] = true;
  }
  const Request& r;
  const GetHeadResult& head;
  std::vector<uint32_t> parts;
  std::vector<bool> bad;
};

// As a wire would: `step` bytes at a time, and no more than the head announced.
void Receive(std::string_view stream, size_t step, GetPayload* sink) {
  while (!stream.empty()) {
    std::vector<iovec> buffers;
    sink->NextBuffers(std::min(step, stream.size()), 7, &buffers);
    if (buffers.empty()) return;  // the wire ends the call
    size_t landed = 0;
    for (const iovec& buffer : buffers) {
      CISTERN_CHECK(buffer.iov_len > 0);
      std::memcpy(buffer.iov_base, stream.data() + landed, buffer.iov_len);
      landed += buffer.iov_len;
    }
    CISTERN_CHECK(landed <= std::min(step, stream.size()));
    if (!sink->Landed(landed).ok()) return;
    stream.remove_prefix(landed);
  }
}

void Check(unsigned kind, std::string_view meta, std::string_view stream, size_t step) {
  Request r = MakeRequest(kind);
  GetHeadResult head;
  if (!ReadGetHead(meta, r.batch, &head).ok()) return;
  CISTERN_CHECK(head.outcomes.size() == r.batch.targets.size());
  CISTERN_CHECK(head.chunks.size() == head.targets.size());
  Listener listener(r, head);
  GetPayload sink(head.chunks, r.batch.order, &listener);
  CISTERN_CHECK(sink.stream_bytes() == head.payload_bytes);
  Receive(stream.substr(0, std::min<uint64_t>(stream.size(), head.payload_bytes)), step, &sink);
  for (size_t c = 0; c < head.chunks.size(); ++c) {
    if (sink.verdict(c) == GetPayload::Verdict::kVerified) {
      CISTERN_CHECK(InPlace(r, head.targets[c], UINT64_MAX));
    }
  }
  for (const std::string& memory : r.memory) {
    CISTERN_CHECK(memory.substr(0, kGuard) == std::string(kGuard, kCanary));
    CISTERN_CHECK(memory.substr(memory.size() - kGuard) == std::string(kGuard, kCanary));
  }
}

}  // namespace
}  // namespace cistern

// One byte of kind, two of how long the head is, one of step; the head, the stream.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 4, size - 4);
  const size_t head = std::min<size_t>(rest.size(), data[1] | data[2] << 8);
  cistern::Check(data[0] % 8, rest.substr(0, head), rest.substr(head), 1 + data[3] * 64);
  return 0;
}

namespace cistern {
namespace {

void RunOne(unsigned kind, const std::string& head, const std::string& stream, uint8_t step) {
  std::string input;
  input.push_back(static_cast<char>(kind));
  input.push_back(static_cast<char>(head.size() & 0xFF));
  input.push_back(static_cast<char>(head.size() >> 8));
  input.push_back(static_cast<char>(step));
  input += head + stream;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

TEST(GetHeadFuzzTest, GoodAnswersPassSoTheirDamageIsReached) {
  for (unsigned kind = 0; kind < 8; ++kind) {
    Request r = MakeRequest(kind);
    const Answer a = MakeAnswer(r);
    GetHeadResult head;
    ASSERT_OK(ReadGetHead(a.head.SerializeAsString(), r.batch, &head)) << kind;
    Listener listener(r, head);
    GetPayload sink(head.chunks, r.batch.order, &listener);
    Receive(a.stream, 1'000, &sink);
    for (size_t i = 0; i < r.chunks.size(); ++i) {
      EXPECT_TRUE(InPlace(r, i, UINT64_MAX)) << kind << " " << i;
      const bool verifiable = kind / 2 != 2 || i != 0;  // but for the range that cuts parts
      EXPECT_EQ(sink.verdict(i), verifiable && r.batch.targets[i].check
                                     ? GetPayload::Verdict::kVerified
                                     : GetPayload::Verdict::kUnverified)
          << kind << " " << i;
    }
    RunOne(kind, a.head.SerializeAsString(), a.stream, 15);
  }
}

TEST(GetHeadFuzzTest, RandomBytesAndDamagedAnswers) {
  constexpr uint64_t kSeed = 20'261'130;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const uint64_t extremes[] = {0,          1,         4095, 4096, 4097, 1 << 30, (1u << 30) + 1,
                               0x80000000, 0xFFFFFFFF};
  std::vector<Answer> good;
  for (unsigned kind = 0; kind < 8; ++kind) good.push_back(MakeAnswer(MakeRequest(kind)));
  for (int round = 0; round < 1'000; ++round) {
    const unsigned kind = random() % 8;
    Answer a = good[kind];
    const size_t n = a.head.statuses().size();
    for (uint64_t damage = random() % 4; damage > 0; --damage) {
      std::string* columns[] = {a.head.mutable_lengths(), a.head.mutable_part_bytes()};
      switch (random() % 8) {
        case 0:
          (*a.head.mutable_statuses())[random() % n] = static_cast<char>(random() % 15);
          break;
        case 1: {
          const auto value = static_cast<uint32_t>(extremes[random() % std::size(extremes)]);
          std::memcpy(columns[random() % 2]->data() + 4 * (random() % n), &value, 4);
          break;
        }
        case 2: {
          const uint32_t power = 1u << random() % 32;
          std::memcpy(a.head.mutable_part_bytes()->data() + 4 * (random() % n), &power, 4);
          break;
        }
        case 3:
          a.head.mutable_roots()->data()[random() % (8 * n)] ^= 1 << random() % 8;
          break;
        case 4:
          a.head.mutable_digest_kinds()->assign(n, static_cast<char>(random() % 4));
          break;
        case 5:
          a.head.mutable_lengths()->resize(random() % 20);
          break;
        case 6:
          a.stream[random() % a.stream.size()] ^= 1 << random() % 8;
          break;
        case 7:
          a.stream.resize(random() % (a.stream.size() + 100));
          break;
      }
      if (a.stream.empty()) a.stream = "x";
    }
    // Mostly with a sum that fits, so that what is behind that check is reached.
    if (random() % 4 != 0) {
      Request r = MakeRequest(kind);
      GetHeadResult head;
      (void)ReadGetHead(a.head.SerializeAsString(), r.batch, &head);
      a.head.set_payload_bytes(head.payload_bytes);
    }
    std::string head = a.head.SerializeAsString();
    if (random() % 8 == 0) head[random() % head.size()] ^= 1 << random() % 8;
    RunOne(kind, head, a.stream, static_cast<uint8_t>(random()));
  }
  for (int round = 0; round < 1'000; ++round) {
    std::string input(random() % 300, '\0');
    for (char& c : input) c = static_cast<char>(random());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
}

}  // namespace
}  // namespace cistern
