#include "transport/shm/ring.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/test_util.h"
#include "transport/shm/ring_memory.h"

namespace cistern::transport {
namespace {

using testing::HasSubstr;

// Both ends over memory of this process.
struct Ring {
  explicit Ring(uint64_t bytes)
      : memory(bytes),
        sender(&counters, memory.data(), bytes),
        receiver(&counters, memory.data(), bytes) {}
  RingCounters counters{};
  std::vector<char> memory;
  RingSender sender;
  RingReceiver receiver;
};

std::string Take(Ring& ring, size_t bytes) {
  std::string out(bytes, '\0');
  const iovec piece = {out.data(), bytes};
  ring.receiver.Take({&piece, 1});
  return out;
}

TEST(RingTest, BytesComeOutInOrderAroundTheEnd) {
  Ring ring(1000);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::string data = PatternBytes(seed, 1 + seed * 17 % 700);
    ring.sender.Put(data.data(), data.size());
    EXPECT_EQ(Take(ring, data.size()), data);
  }
}

// Long ones are written in another way than short ones.
TEST(RingTest, LongPiecesComeOutAroundTheEnd) {
  constexpr uint64_t kBytes = 100'000;
  Ring ring(kBytes);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::string data = PatternBytes(seed, 16'300 + seed * 1'517);
    ring.sender.Put(data.data() + seed % 3, data.size() - seed % 3);
    EXPECT_EQ(Take(ring, data.size() - seed % 3), data.substr(seed % 3));
  }
}

TEST(RingTest, BytesAreSeenWhereTheyAreInStretches) {
  Ring ring(1000);
  ring.sender.Pass(800);
  ring.receiver.Pass(800);
  const std::string data = PatternBytes(1, 700);
  ring.sender.Put(data.data(), data.size());
  const absl::Span<const char> first = ring.receiver.Peek(700);
  EXPECT_EQ(std::string(first.data(), first.size()), data.substr(0, 200));
  EXPECT_EQ(ring.receiver.Peek(150).size(), 150u);
  ring.receiver.Pass(200);
  const absl::Span<const char> second = ring.receiver.Peek(500);
  EXPECT_EQ(std::string(second.data(), second.size()), data.substr(200));
}

TEST(RingTest, RoomIsWhatTheReceiverHasGivenBack) {
  Ring ring(1000);
  EXPECT_EQ(*ring.sender.Room(), 1000u);
  const std::string data(700, 'x');
  ring.sender.Put(data.data(), data.size());
  EXPECT_EQ(*ring.sender.Room(), 300u);
  Take(ring, 200);
  EXPECT_EQ(*ring.sender.Room(), 500u);
  ring.sender.Pass(500);  // read elsewhere: takes its place all the same
  EXPECT_EQ(*ring.sender.Room(), 0u);
  ring.receiver.Pass(1000);
  EXPECT_EQ(*ring.sender.Room(), 1000u);
}

TEST(RingTest, SenderIsWokenOnceWhenHalfIsFree) {
  Ring ring(1000);
  ring.sender.Pass(1000);
  EXPECT_FALSE(ring.sender.AskToBeWoken());
  ring.receiver.Pass(499);
  EXPECT_FALSE(ring.receiver.TakeWake());
  ring.receiver.Pass(1);
  EXPECT_TRUE(ring.receiver.TakeWake());
  EXPECT_FALSE(ring.receiver.TakeWake());
  ring.receiver.Pass(1);
  EXPECT_FALSE(ring.receiver.TakeWake());   // answered already
  EXPECT_TRUE(ring.sender.AskToBeWoken());  // half is free: go on
}

TEST(RingTest, CountersThatCannotBeAreRefused) {
  for (const uint64_t lie : {uint64_t{101}, UINT64_MAX, uint64_t{49}}) {
    Ring ring(1000);
    ring.sender.Pass(100);
    ring.receiver.Pass(50);
    ASSERT_EQ(*ring.sender.Room(), 950u);
    ring.counters.released = lie;
    EXPECT_THAT(ring.sender.Room(), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(RingTest, AnyWakeAtHarmsNobody) {
  Ring ring(1000);
  for (const uint64_t lie : {uint64_t{1}, UINT64_MAX, uint64_t{0}, uint64_t{5}}) {
    ring.counters.wake_at = lie;
    ring.receiver.Pass(10);
    ring.receiver.TakeWake();
  }
  EXPECT_EQ(ring.receiver.taken(), 40u);
}

// No wake-up is lost: two threads, one of which sleeps whenever the other has not made room.
TEST(RingTest, SenderThatSleepsIsAlwaysWoken) {
  constexpr uint64_t kRing = 256;
  constexpr uint64_t kTotal = 200'000;
  Ring ring(kRing);
  std::atomic<uint64_t> available{0};
  std::atomic<int> wakes{0};
  std::thread sender([&] {
    std::mt19937 random(7);
    uint64_t sent = 0;
    while (sent < kTotal) {
      const uint64_t n = std::min<uint64_t>(1 + random() % 100, kTotal - sent);
      while (*ring.sender.Room() < n) {
        const int before = wakes.load();
        if (ring.sender.AskToBeWoken()) continue;
        // Ends by a wake-up or not at all: the test's time limit is what fails.
        while (wakes.load() == before && *ring.sender.Room() < kRing / 2) std::this_thread::yield();
      }
      std::string data(n, '\0');
      for (uint64_t i = 0; i < n; ++i) data[i] = static_cast<char>((sent + i) * 31);
      ring.sender.Put(data.data(), n);
      sent += n;
      available.store(sent, std::memory_order_release);
    }
  });
  uint64_t taken = 0;
  bool right = true;
  while (taken < kTotal) {
    const uint64_t n =
        std::min<uint64_t>(available.load(std::memory_order_acquire) - taken, uint64_t{64});
    if (n == 0) {
      std::this_thread::yield();
      continue;
    }
    const std::string got = Take(ring, n);
    for (uint64_t i = 0; i < n; ++i) {
      right = right && got[i] == static_cast<char>((taken + i) * 31);
    }
    taken += n;
    if (ring.receiver.TakeWake()) wakes.fetch_add(1);
  }
  sender.join();
  EXPECT_TRUE(right);
}

TEST(RingMemoryTest, IsSealedAndSharedByBothMappings) {
  OwnedFd fd;
  ASSERT_OK_AND_ASSIGN(const RingMemory store, RingMemory::Create(256 << 10, &fd));
  ASSERT_OK_AND_ASSIGN(const RingMemory client, RingMemory::Adopt(fd, 256 << 10));
  EXPECT_NE(store.to_client(), client.to_client());
  store.to_client()[5] = 'x';
  EXPECT_EQ(client.to_client()[5], 'x');
  client.page()->to_client.released = 77;
  EXPECT_EQ(store.page()->to_client.released, 77u);
  EXPECT_NE(ftruncate(fd.get(), 4096), 0);
  EXPECT_NE(ftruncate(fd.get(), 1 << 30), 0);
  EXPECT_NE(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
}

TEST(RingMemoryTest, WhatIsNoRingIsNotAdopted) {
  OwnedFd fd;
  ASSERT_OK_AND_ASSIGN(const RingMemory store, RingMemory::Create(256 << 10, &fd));
  EXPECT_THAT(RingMemory::Adopt(fd, 512 << 10), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(RingMemory::Adopt(fd, 0), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(RingMemory::Adopt(fd, UINT64_MAX), StatusIs(absl::StatusCode::kInvalidArgument));
  // The right size, and a size that could shrink.
  const OwnedFd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), static_cast<off_t>(RingMemoryBytes(256 << 10))), 0);
  EXPECT_THAT(RingMemory::Adopt(unsealed, 256 << 10),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no ring")));
  // Sealed, and empty inside.
  ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THAT(RingMemory::Adopt(unsealed, 256 << 10),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no ring")));
}

}  // namespace
}  // namespace cistern::transport
