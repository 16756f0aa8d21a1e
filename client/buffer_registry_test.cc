#include "client/buffer_registry.h"

#include <atomic>
#include <thread>

#include "base/eventually.h"
#include "base/test_util.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Use = BufferRegistry::Use;

// Addresses are never touched by the registry: tests may make them up.
void* At(uintptr_t address) { return reinterpret_cast<void*>(address); }

class BufferRegistryTest : public ::testing::Test {
 protected:
  uint32_t Register(uintptr_t address, uint64_t bytes) {
    absl::StatusOr<uint32_t> buffer = registry_.Register({.data = At(address), .bytes = bytes});
    EXPECT_THAT(buffer, IsOk());
    return buffer.value_or(0);
  }
  // Whether one chunk of these spans may be used.
  bool Usable(std::vector<Span> spans, Use use = Use::kRead) {
    const Memory memory{.spans = spans};
    std::vector<MemoryRef> refs;
    registry_.Resolve(
        1, [&](size_t) -> const Memory& { return memory; }, use, &refs, &message_);
    return static_cast<bool>(refs[0]);
  }

  BufferRegistry registry_;
  std::string message_;
};

TEST_F(BufferRegistryTest, SpanMustLieInsideOneBuffer) {
  Register(0x10000, 0x1000);
  Register(0x11000, 0x1000);  // adjacent: still two buffers
  EXPECT_TRUE(Usable({{At(0x10000), 0x1000}}));
  EXPECT_TRUE(Usable({{At(0x10fff), 1}, {At(0x11000), 0x1000}}));
  EXPECT_FALSE(Usable({{At(0x10fff), 2}}));
  EXPECT_THAT(message_, HasSubstr("item 0: span at 0x10fff of 2 bytes does not lie in one"));
  EXPECT_FALSE(Usable({{At(0xffff), 1}}));
  EXPECT_FALSE(Usable({{At(0x12000), 1}}));
}

TEST_F(BufferRegistryTest, OverlappingBuffersServeWhatEitherContains) {
  Register(0x10000, 0x10000);
  Register(0x12000, 0x100);  // inside the first
  const uint32_t tail = Register(0x1f000, 0x4000);
  EXPECT_TRUE(Usable({{At(0x12080), 0x1000}}));  // begins in the small one, fits the large one
  EXPECT_TRUE(Usable({{At(0x1f800), 0x3000}}));
  EXPECT_FALSE(Usable({{At(0x1e000), 0x3000}}));  // in their union only
  registry_.Unregister(tail);
  EXPECT_FALSE(Usable({{At(0x1f800), 0x3000}}));
  EXPECT_TRUE(Usable({{At(0x1f800), 0x800}}));
}

TEST_F(BufferRegistryTest, UseMustBeAllowed) {
  ASSERT_OK(registry_.Register({.data = At(0x10000), .bytes = 0x1000, .remote_write = false}));
  EXPECT_TRUE(Usable({{At(0x10000), 0x1000}}, Use::kRead));
  EXPECT_FALSE(Usable({{At(0x10000), 0x1000}}, Use::kWrite));
  // A second registration of the same memory adds what it allows.
  ASSERT_OK(registry_.Register({.data = At(0x10000), .bytes = 0x800, .remote_read = false}));
  EXPECT_TRUE(Usable({{At(0x10000), 0x800}}, Use::kWrite));
  EXPECT_FALSE(Usable({{At(0x10000), 0x1000}}, Use::kWrite));
}

TEST_F(BufferRegistryTest, BadSpansAreRefused) {
  Register(0x10000, uint64_t{1} << 40);
  EXPECT_FALSE(Usable({}));
  EXPECT_FALSE(Usable({{At(0x10000), 0}}));
  EXPECT_FALSE(Usable({{At(0x10000), UINT64_MAX}}));
  EXPECT_FALSE(Usable({{At(UINTPTR_MAX - 10), 100}}));
  EXPECT_FALSE(Usable({{nullptr, 4096}}));
  EXPECT_TRUE(Usable(std::vector<Span>(4096, Span{At(0x10000), 1})));
  EXPECT_FALSE(Usable(std::vector<Span>(4097, Span{At(0x10000), 1})));
  EXPECT_THAT(message_, HasSubstr("4097 spans"));
}

TEST_F(BufferRegistryTest, BadBuffersAreRefused) {
  EXPECT_THAT(registry_.Register({.data = nullptr, .bytes = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(registry_.Register({.data = At(0x1000), .bytes = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(registry_.Register({.data = At(0x1000), .bytes = UINT64_MAX}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(registry_.Register({.data = At(0x1000), .bytes = 1, .kind = MemoryKind::kCuda}),
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_EQ(registry_.buffer_count(), 0u);
}

TEST_F(BufferRegistryTest, LayoutUnitsAreWorkedOut) {
  Register(0x10000, 0x8000);
  Register(0x20000, 0x8000);
  ASSERT_OK_AND_ASSIGN(const LayoutId id,
                       registry_.RegisterLayout({.bases = {At(0x10000), At(0x20000)},
                                                 .unit_stride_bytes = 0x2000,
                                                 .piece_bytes = 0x1000,
                                                 .unit_count = 4}));
  const Memory good{.layout = id, .unit = 3};
  const Memory beyond{.layout = id, .unit = 4};
  const Memory unknown{.layout = LayoutId{99}};
  const Memory* items[] = {&good, &beyond, &unknown};
  std::vector<MemoryRef> refs;
  BufferRegistry::Pins pins = registry_.Resolve(
      3, [&](size_t i) -> const Memory& { return *items[i]; }, Use::kWrite, &refs, &message_);
  ASSERT_TRUE(refs[0]);
  EXPECT_EQ(refs[0].bytes(), 0x2000u);
  EXPECT_EQ(refs[0].piece(0).iov_base, At(0x16000));  // 0x10000 + 3 x 0x2000
  EXPECT_EQ(refs[0].piece(1).iov_base, At(0x26000));
  EXPECT_EQ(refs[0].piece(1).iov_len, 0x1000u);
  EXPECT_FALSE(refs[1]);
  EXPECT_FALSE(refs[2]);
  EXPECT_THAT(message_, HasSubstr("item 1: the layout has no such unit"));
}

TEST_F(BufferRegistryTest, LayoutNeedsRegisteredMemory) {
  const uint32_t buffer = Register(0x10000, 0x8000);
  Layout layout{
      .bases = {At(0x10000)}, .unit_stride_bytes = 0x2000, .piece_bytes = 0x2000, .unit_count = 4};
  ASSERT_OK_AND_ASSIGN(const LayoutId id, registry_.RegisterLayout(layout));
  layout.unit_count = 5;
  EXPECT_THAT(registry_.RegisterLayout(layout), StatusIs(absl::StatusCode::kInvalidArgument));
  layout.unit_count = UINT32_MAX;
  layout.unit_stride_bytes = UINT64_MAX / 2;
  EXPECT_THAT(registry_.RegisterLayout(layout), StatusIs(absl::StatusCode::kInvalidArgument));
  // Once its memory is gone the layout serves nothing.
  registry_.Unregister(buffer);
  const Memory memory{.layout = id};
  std::vector<MemoryRef> refs;
  registry_.Resolve(
      1, [&](size_t) -> const Memory& { return memory; }, Use::kRead, &refs, &message_);
  EXPECT_FALSE(refs[0]);
  EXPECT_OK(registry_.UnregisterLayout(id));
  EXPECT_THAT(registry_.UnregisterLayout(id), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(BufferRegistryTest, UnregisterWaitsForPinsAndRefusesLaterCalls) {
  const uint32_t buffer = Register(0x10000, 0x1000);
  const std::vector<Span> spans = {{At(0x10000), 0x1000}};
  const Memory memory{.spans = spans};
  std::vector<MemoryRef> refs;
  BufferRegistry::Pins pins = registry_.Resolve(
      1, [&](size_t) -> const Memory& { return memory; }, Use::kRead, &refs, &message_);
  ASSERT_TRUE(refs[0]);
  std::atomic<bool> returned = false;
  std::thread thread([&] {
    registry_.Unregister(buffer);
    returned = true;
  });
  // The buffer leaves the table before the wait begins: once it is refused, the thread waits.
  EXPECT_TRUE(Eventually([&] { return !Usable({{At(0x10000), 0x1000}}); }));
  EXPECT_FALSE(returned);
  pins.Release();
  thread.join();
  EXPECT_TRUE(returned);
}

std::vector<bool> Overlaps(const std::vector<std::vector<Span>>& items) {
  std::vector<MemoryRef> refs;
  for (const auto& spans : items) refs.push_back(MemoryRef(spans, 1));
  return FindOverlaps(refs);
}

TEST(FindOverlapsTest, MarksBothSides) {
  EXPECT_THAT(Overlaps({{{At(100), 10}}, {{At(110), 10}}, {{At(90), 10}}}),
              ElementsAre(false, false, false));
  EXPECT_THAT(Overlaps({{{At(100), 10}}, {{At(50), 10}}, {{At(109), 1}}}),
              ElementsAre(true, false, true));
  // A long one over two short ones that do not meet.
  EXPECT_THAT(Overlaps({{{At(60), 1}}, {{At(0), 100}}, {{At(20), 1}}, {{At(100), 5}}}),
              ElementsAre(true, true, true, false));
  // The lead changes hands between overlapping neighbours.
  EXPECT_THAT(Overlaps({{{At(0), 30}}, {{At(10), 90}}, {{At(40), 10}}, {{At(200), 1}}}),
              ElementsAre(true, true, true, false));
}

TEST(FindOverlapsTest, AnItemCanOverlapItself) {
  EXPECT_THAT(Overlaps({{{At(0), 10}, {At(5), 10}}, {{At(20), 10}, {At(40), 10}}}),
              ElementsAre(true, false));
}

}  // namespace
}  // namespace cistern
