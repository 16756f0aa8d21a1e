#include "tools/poolbench/working_set.h"

#include <set>

#include "gtest/gtest.h"

namespace cistern::poolbench {
namespace {

TEST(PieceOffsetTest, PiecesOfAChunkLieApartAndNoTwoOverlap) {
  // 3 chunks of 4 pieces of 10 bytes: all first pieces, then all second ones.
  EXPECT_EQ(PieceOffset(0, 0, 3, 10), 0u);
  EXPECT_EQ(PieceOffset(2, 0, 3, 10), 20u);
  EXPECT_EQ(PieceOffset(0, 1, 3, 10), 30u);
  EXPECT_EQ(PieceOffset(2, 3, 3, 10), 110u);
  std::set<uint64_t> seen;
  for (uint64_t chunk = 0; chunk < 3; ++chunk) {
    for (uint64_t piece = 0; piece < 4; ++piece) {
      EXPECT_TRUE(seen.insert(PieceOffset(chunk, piece, 3, 10)).second);
    }
  }
  EXPECT_EQ(*seen.rbegin(), 110u);
}

TEST(ExpectTest, NamesWhatWasNotAsExpected) {
  BatchResult result;
  result.items.resize(2);
  result.items[0].code = result.items[1].code = ChunkCode::kOk;
  EXPECT_TRUE(Expect(result, ChunkCode::kOk, "put").ok());
  result.items[1].code = ChunkCode::kResourceExhausted;
  result.message = "no room";
  const absl::Status status = Expect(result, ChunkCode::kOk, "put");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("no room"), absl::string_view::npos) << status;
  result.status = absl::UnavailableError("gone");
  EXPECT_EQ(Expect(result, ChunkCode::kOk, "put"), absl::UnavailableError("gone"));
}

}  // namespace
}  // namespace cistern::poolbench
