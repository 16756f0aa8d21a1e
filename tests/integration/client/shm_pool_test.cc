// A client and stores of one host, by shared memory: real daemons.

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/client/pool_fixture.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kChunk = 4 << 20;

// Descriptors of AllocateBuffer's memory that a process holds.
int BuffersHeldBy(pid_t pid) {
  int count = 0;
  DIR* folder = opendir(absl::StrCat("/proc/", pid, "/fd").c_str());
  if (folder == nullptr) return -1;
  while (const dirent* entry = readdir(folder)) {
    char link[256] = {};
    if (readlinkat(dirfd(folder), entry->d_name, link, sizeof(link) - 1) > 0 &&
        absl::StartsWith(link, "/memfd:cistern-buffer")) {
      ++count;
    }
  }
  closedir(folder);
  return count;
}

class ShmPoolTest : public PoolFixture {
 protected:
  std::vector<Span> SpansAt(uint64_t offset, int chunks) const {
    std::vector<Span> spans;
    for (int i = 0; i < chunks; ++i) {
      spans.push_back({At(offset + static_cast<uint64_t>(i) * kChunk), kChunk});
    }
    return spans;
  }
};

TEST_F(ShmPoolTest, IsTakenByItselfAndSaysWhy) {
  StartPool(uint64_t{256} << 20);
  EXPECT_EQ(Put("a", 1, kChunk), ChunkCode::kOk);
  EXPECT_EQ(Get("a", kChunk), ChunkCode::kOk);
  EXPECT_TRUE(Brought(1, kChunk));
  EXPECT_TRUE(last_.verified);
  ASSERT_FALSE(client_->wires().empty());
  for (const StoreWire& wire : client_->wires()) {
    EXPECT_EQ(wire.wire, "shm") << wire.why;
    EXPECT_EQ(wire.why, "the store is on this host");
  }
}

TEST_F(ShmPoolTest, StoresLetGoOfFreedBuffers) {
  StartPool(uint64_t{256} << 20, /*stores=*/1);
  EXPECT_EQ(Put("a", 1, kChunk), ChunkCode::kOk);
  EXPECT_GT(BuffersHeldBy(store_pid(0)), 0);
  buffer_ = Buffer();
  const MonoTime end = Clock::Real().Mono() + absl::Seconds(20);
  while (BuffersHeldBy(store_pid(0)) != 0 && Clock::Real().Mono() < end) {
    Clock::Real().SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(BuffersHeldBy(store_pid(0)), 0);
}

TEST_F(ShmPoolTest, StoppedStoreCommitsNoBytesThatCameLater) {
  StartPool(uint64_t{1} << 30, /*stores=*/1);
  ASSERT_EQ(Put("warm", 1, kChunk), ChunkCode::kOk);
  constexpr int kChunks = 8;
  const std::vector<Span> spans = SpansAt(0, kChunks);
  int unfinished = 0;
  for (int round = 0; round < 12; ++round) {
    std::vector<PutItem> items;
    std::vector<std::string> keys;
    for (int i = 0; i < kChunks; ++i) keys.push_back(absl::StrCat("r", round, "c", i));
    for (int i = 0; i < kChunks; ++i) {
      FillPattern(static_cast<uint64_t>(round * 100 + i), spans[static_cast<size_t>(i)].data,
                  kChunk);
      items.push_back({.id = Id(keys[static_cast<size_t>(i)]),
                       .memory = {.spans = {&spans[static_cast<size_t>(i)], 1}}});
    }
    std::thread freezer([&] {
      Clock::Real().SleepFor(absl::Milliseconds(round));
      kill(store_pid(0), SIGSTOP);
    });
    PutOptions options;
    options.deadline = absl::Milliseconds(200);
    const BatchResult result = ns_->BatchPut(items, options);
    // The memory is the caller's again.
    std::memset(At(0), 0x5A, kChunks * kChunk);
    freezer.join();
    kill(store_pid(0), SIGCONT);
    for (int i = 0; i < kChunks; ++i) {
      const bool put = result.items[static_cast<size_t>(i)].code == ChunkCode::kOk;
      unfinished += put ? 0 : 1;
      const ChunkCode got = Get(keys[static_cast<size_t>(i)], kChunk);
      if (got == ChunkCode::kOk) {
        EXPECT_TRUE(Brought(static_cast<uint64_t>(round * 100 + i), kChunk)) << round << " " << i;
      } else {
        EXPECT_FALSE(put) << round << " " << i << ": " << ChunkCodeName(got) << " " << message_;
      }
    }
  }
  EXPECT_GT(unfinished, 0);
}

TEST_F(ShmPoolTest, StoppedStoreWritesNothingAfterTheGetHasReturned) {
  StartPool(uint64_t{512} << 20, /*stores=*/1);
  constexpr int kChunks = 16;
  for (int i = 0; i < kChunks; ++i) {
    ASSERT_EQ(Put(absl::StrCat("c", i), static_cast<uint64_t>(i), kChunk), ChunkCode::kOk);
  }
  const uint64_t target = kBufferBytes / 2;
  const std::vector<Span> spans = SpansAt(target, kChunks);
  int unfinished = 0;
  for (int round = 0; round < 12; ++round) {
    std::vector<GetItem> items;
    for (int i = 0; i < kChunks; ++i) {
      items.push_back({.id = Id(absl::StrCat("c", i)),
                       .memory = {.spans = {&spans[static_cast<size_t>(i)], 1}}});
    }
    std::thread freezer([&] {
      Clock::Real().SleepFor(absl::Milliseconds(round));
      kill(store_pid(0), SIGSTOP);
    });
    GetOptions options;
    options.deadline = absl::Milliseconds(200);
    const BatchResult result = ns_->BatchGet(items, options);
    for (int i = 0; i < kChunks; ++i) {
      if (result.items[static_cast<size_t>(i)].code != ChunkCode::kOk) {
        ++unfinished;
        continue;
      }
      EXPECT_TRUE(std::string_view(At(target + static_cast<uint64_t>(i) * kChunk), kChunk) ==
                  PatternBytes(static_cast<uint64_t>(i), kChunk));
    }
    std::memset(At(target), 0x5A, kChunks * kChunk);
    freezer.join();
    kill(store_pid(0), SIGCONT);
    // The store has gone on with whatever it was at when it answers this.
    ASSERT_OK(ns_->Lookup(std::vector<KeyId>{Id("c0")}));
    FillPattern(99, At(0), kChunk);
    const Span other{At(0), kChunk};
    const PutItem put{.id = Id(absl::StrCat("after", round)), .memory = {.spans = {&other, 1}}};
    EXPECT_EQ(ns_->BatchPut({&put, 1}).items[0].code, ChunkCode::kOk);
    const auto* bytes = reinterpret_cast<const uint8_t*>(At(target));
    EXPECT_EQ(std::count(bytes, bytes + kChunks * kChunk, 0x5A),
              static_cast<std::ptrdiff_t>(kChunks * kChunk));
  }
  EXPECT_GT(unfinished, 0);
}

TEST_F(ShmPoolTest, ForeignMemoryAndNamespacesWithoutDigestsWorkToo) {
  StartPool(uint64_t{256} << 20, /*stores=*/1);
  std::vector<char> own(2 * kChunk);
  ASSERT_OK_AND_ASSIGN(const Buffer registered,
                       client_->RegisterBuffer({.data = own.data(), .bytes = own.size()}));
  NamespaceOptions plain;
  plain.digest = false;
  ASSERT_OK_AND_ASSIGN(const auto undigested, client_->OpenNamespace("plain", "v1", plain));
  for (Namespace* ns : {ns_.get(), undigested.get()}) {
    for (char* from : {own.data(), At(0)}) {
      const std::string key = absl::StrCat("k", from == own.data());
      FillPattern(7, from, kChunk);
      const Span source{from, kChunk};
      const PutItem put{.id = *ns->Hash(key), .memory = {.spans = {&source, 1}}};
      ASSERT_EQ(ns->BatchPut({&put, 1}).items[0].code, ChunkCode::kOk);
      const Span target{own.data() + kChunk, kChunk};
      const GetItem get{.id = *ns->Hash(key), .memory = {.spans = {&target, 1}}};
      ASSERT_EQ(ns->BatchGet({&get, 1}).items[0].code, ChunkCode::kOk);
      EXPECT_TRUE(std::string_view(own.data() + kChunk, kChunk) == PatternBytes(7, kChunk));
    }
  }
}

class NoShmPoolTest : public PoolFixture {
 protected:
  void Start(std::vector<std::string> store_set) {
    pool::LocalPoolOptions options;
    options.stores = 1;
    options.pool_bytes = uint64_t{64} << 20;
    options.bin_dir = ".";
    options.store_set = std::move(store_set);
    ASSERT_OK_AND_ASSIGN(pool_, pool::LocalPool::Start(options, Clock::Real()));
  }
  void UseClient(const ClientOptions& options) {
    ASSERT_OK_AND_ASSIGN(client_, Client::Connect(options));
    ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("test", "v1"));
    ASSERT_OK_AND_ASSIGN(buffer_, client_->AllocateBuffer(kBufferBytes));
  }
};

TEST_F(NoShmPoolTest, ForcedWhereItIsNotOfferedIsAClearError) {
  Start({"shm.enabled=false"});
  ClientOptions options = ConnectOptions();
  options.wire = Wire::kShm;
  EXPECT_THAT(Client::Connect(options), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                 HasSubstr("offers no shared memory")));
  UseClient(ConnectOptions());
  EXPECT_EQ(Put("a", 1, 100'000), ChunkCode::kOk);
  ASSERT_EQ(client_->wires().size(), 1u);
  EXPECT_EQ(client_->wires()[0].wire, "tcp");
}

TEST_F(NoShmPoolTest, WhereItIsRefusedTcpServesAndTheReasonIsKnown) {
  Start({"shm.allowed_uids=4242424"});
  UseClient(ConnectOptions());
  EXPECT_EQ(Put("a", 1, kChunk), ChunkCode::kOk);
  EXPECT_EQ(Get("a", kChunk), ChunkCode::kOk);
  EXPECT_TRUE(Brought(1, kChunk));
  ASSERT_EQ(client_->wires().size(), 1u);
  EXPECT_EQ(client_->wires()[0].wire, "tcp");
  EXPECT_THAT(client_->wires()[0].why, HasSubstr("shm.allowed_uids"));
}

TEST_F(NoShmPoolTest, ForcedAndTcpClientsShareAPool) {
  Start({});
  ClientOptions options = ConnectOptions();
  options.wire = Wire::kShm;
  UseClient(options);
  EXPECT_EQ(Put("a", 1, kChunk, Visible()), ChunkCode::kOk);
  EXPECT_EQ(client_->wires()[0].wire, "shm");
  buffer_ = Buffer();
  options.wire = Wire::kTcp;
  UseClient(options);
  EXPECT_EQ(Get("a", kChunk), ChunkCode::kOk);
  EXPECT_TRUE(Brought(1, kChunk));
  EXPECT_EQ(client_->wires()[0].wire, "tcp");
}

}  // namespace
}  // namespace cistern
