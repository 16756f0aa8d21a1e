// Columns from a peer are refused or readable for every element they claim to have.
#include "base/columns.h"

#include "base/fuzz_util.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

// The element of `bytes` at `i`, the slow way.
template <typename T>
T Element(std::string_view bytes, size_t i) {
  T value = 0;
  for (size_t b = 0; b < sizeof(T); ++b) {
    value = static_cast<T>(value | static_cast<T>(static_cast<uint8_t>(bytes[i * sizeof(T) + b]))
                                       << (8 * b));
  }
  return value;
}

template <typename T>
void CheckColumn(std::string_view bytes, size_t n, bool allow_empty, bool allow_broadcast) {
  const T fallback = T{42};
  const auto column = Column<T>::Parse(bytes, n, "fuzz", allow_empty, allow_broadcast, fallback);
  const bool full = bytes.size() == n * sizeof(T);
  const bool broadcast = allow_broadcast && bytes.size() == sizeof(T);
  const bool absent = allow_empty && bytes.empty();
  ASSERT_EQ(column.ok(), full || broadcast || absent) << bytes.size() << " bytes for " << n;
  if (!column.ok()) return;
  ASSERT_EQ(column->size(), n);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_EQ((*column)[i], full        ? Element<T>(bytes, i)
                            : broadcast ? Element<T>(bytes, 0)
                                        : fallback);
  }
}

void CheckBits(std::string_view bits, size_t n) {
  const absl::Status status = CheckBitmap(bits, n, "fuzz", false);
  size_t set_inside = 0;
  for (size_t i = 0; i < n; ++i) set_inside += BitmapGet(bits, i) ? 1 : 0;
  size_t set = 0;
  for (const char c : bits) set += static_cast<size_t>(std::popcount(static_cast<uint8_t>(c)));
  ASSERT_EQ(status.ok(), bits.size() == (n + 7) / 8 && set == set_inside);
}

}  // namespace
}  // namespace cistern

// The first two bytes say how many elements the batch has and what is allowed.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t n = data[0];
  const bool allow_empty = (data[1] & 1) != 0;
  const bool allow_broadcast = (data[1] & 2) != 0;
  CheckColumn<uint8_t>(bytes, n, allow_empty, allow_broadcast);
  CheckColumn<uint16_t>(bytes, n, allow_empty, allow_broadcast);
  CheckColumn<uint32_t>(bytes, n, allow_empty, allow_broadcast);
  CheckColumn<uint64_t>(bytes, n, allow_empty, allow_broadcast);
  CheckBits(bytes, n);
  const auto ids = KeyColumn::Parse(bytes);
  EXPECT_EQ(ids.ok(), bytes.size() % 16 == 0);
  if (ids.ok()) {
    for (size_t i = 0; i < ids->size(); ++i) EXPECT_EQ((*ids)[i].view(), bytes.substr(16 * i, 16));
  }
  return 0;
}

namespace cistern {
namespace {

TEST(ColumnsFuzzTest, AnyBytesAreRefusedOrReadable) {
  FuzzCorpus corpus(
      {
          std::string("\x02\x00", 2) + "0123456789abcdef",  // two u64, one id
          std::string("\x04\x02", 2) + "0123456789abcdef",  // four u32
          std::string("\x08\x03", 2) + "0123456789abcdef",  // eight u16
          std::string("\x64\x03", 2) + "0123",              // one u32 for a hundred
          std::string("\x64\x01", 2),                       // absent
          std::string("\x0c\x00\xff\x0f", 4),               // a bitmap of twelve
      },
      512);
  corpus.Run(100'000, LLVMFuzzerTestOneInput);
}

}  // namespace
}  // namespace cistern
