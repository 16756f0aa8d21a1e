// Memory that a client lends: what is read where it is, what is not, and that it is given back.

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/shm/shm.h"

namespace cistern::transport {
namespace {

// A sealed, mapped memfd, as AllocateBuffer makes it; with `may_get_holes` as it did formerly, or
// does on an old kernel.
class Memory {
 public:
  Memory(const std::string& name, size_t bytes, bool may_get_holes = false)
      : bytes_(bytes), name_(name) {
    fd_ = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    data_ = static_cast<char*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, /*offset=*/0));
    EXPECT_NE(data_, MAP_FAILED);
    if (!may_get_holes) {
      EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    }
  }
  ~Memory() {
    munmap(data_, bytes_);
    close(fd_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_; }
  // This process's descriptors of it: its own, the one for lending, the store's.
  int Descriptors() const {
    int count = 0;
    DIR* folder = opendir("/proc/self/fd");
    while (const dirent* entry = readdir(folder)) {
      char link[256] = {};
      if (readlinkat(dirfd(folder), entry->d_name, link, sizeof(link) - 1) > 0 &&
          absl::StrContains(link, absl::StrCat("/memfd:", name_, " "))) {
        ++count;
      }
    }
    closedir(folder);
    return count;
  }
  // This process's mappings of it that can only be read: the store's.
  int StoreMappings() const {
    int count = 0;
    std::ifstream file("/proc/self/maps");
    for (std::string line; std::getline(file, line);) {
      if (absl::StrContains(line, " r--s ") &&
          absl::StrContains(line, absl::StrCat("/memfd:", name_, " "))) {
        ++count;
      }
    }
    return count;
  }

 private:
  const size_t bytes_;
  const std::string name_;
  int fd_;
  char* data_;
};

// Gives memory as it is, in pieces of at most `piece` bytes.
class MemorySource final : public PayloadSource {
 public:
  MemorySource(char* data, size_t bytes, size_t piece, bool checked)
      : data_(data), left_(bytes), piece_(piece), checked_(checked) {}
  uint64_t remaining() const override { return left_; }
  void NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) override {
    while (max_bytes > 0 && max_pieces > 0 && left_ > 0) {
      const size_t n = std::min({piece_, max_bytes, left_});
      out->push_back({data_, n});
      data_ += n;
      left_ -= n;
      max_bytes -= n;
      --max_pieces;
    }
  }
  bool checked_by_digests() const override { return checked_; }

 private:
  char* data_;
  size_t left_;
  const size_t piece_;
  const bool checked_;
};

class LendingTest : public testing::Test {
 protected:
  explicit LendingTest(uint64_t max_lent_mapped_bytes = uint64_t{1} << 40) {
    ShmServerOptions server;
    server.socket_path = folder_ / "store.sock";
    server.ring_bytes = 256 << 10;
    server.max_lent_mapped_bytes = max_lent_mapped_bytes;
    auto listening = ListenShm(server, &handler_);
    EXPECT_THAT(listening, IsOk());
    server_ = *std::move(listening);
    auto io = IoContext::Create({});
    EXPECT_THAT(io, IsOk());
    io_ = *std::move(io);
    options_.socket_path = server.socket_path;
    options_.connections = 1;
    options_.lent = lent_;
    channel_ = MakeShmChannel(io_.get(), options_);
  }
  ~LendingTest() override {
    channel_.reset();
    server_->Stop();
  }

  // Puts `bytes` of the pattern from `at`: whether the store found it right.
  std::string Put(char* at, size_t bytes, uint32_t seed, bool checked = true,
                  size_t piece = 1 << 20) {
    const std::string pattern = Pattern(seed, bytes);
    std::copy(pattern.begin(), pattern.end(), at);
    TestCall call;
    CallGroup group;
    call.after_ready = [&] { return std::make_unique<MemorySource>(at, bytes, piece, checked); };
    channel_->Start(MakeSpec(FrameType::kPut, absl::StrCat("ready ", bytes, " 70000 ", seed),
                             absl::Seconds(20)),
                    &call, &group);
    io_->Wait(group);
    return call.status->ok() ? call.meta : std::string(call.status->message());
  }

  const TempDir folder_;
  TestHandler handler_;
  std::unique_ptr<WireServer> server_;
  std::unique_ptr<IoContext> io_;
  const std::shared_ptr<LentMemory> lent_ = std::make_shared<LentMemory>();
  ShmChannelOptions options_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(LendingTest, CheckedPutsAreReadWhereTheyAre) {
  const Memory memory("lent-a", 6 << 20);
  ASSERT_THAT(lent_->Add(memory.data(), memory.bytes(), memory.fd()), IsOk());
  EXPECT_EQ(memory.Descriptors(), 2);
  for (const size_t bytes : {size_t{5'000'000}, size_t{100'000}, size_t{300'001}}) {
    EXPECT_EQ(Put(memory.data() + 777, bytes, 3), "right");
  }
  EXPECT_EQ(memory.Descriptors(), 3);  // handed over once
  EXPECT_EQ(memory.StoreMappings(), 1);
}

TEST_F(LendingTest, MemoryThatMayGetHolesIsReadWithoutAMapping) {
  const Memory memory("lent-l", 6 << 20, /*may_get_holes=*/true);
  ASSERT_THAT(lent_->Add(memory.data(), memory.bytes(), memory.fd()), IsOk());
  for (const size_t bytes : {size_t{5'000'000}, size_t{100'000}, size_t{300'001}}) {
    EXPECT_EQ(Put(memory.data() + 777, bytes, 3), "right");
  }
  EXPECT_EQ(memory.Descriptors(), 3);
  EXPECT_EQ(memory.StoreMappings(), 0);
}

TEST_F(LendingTest, WhatNothingChecksIsCopiedByTheClient) {
  const Memory memory("lent-b", 2 << 20);
  ASSERT_THAT(lent_->Add(memory.data(), memory.bytes(), memory.fd()), IsOk());
  EXPECT_EQ(Put(memory.data(), 1 << 20, 3, /*checked=*/false), "right");
  EXPECT_EQ(memory.Descriptors(), 2);
}

TEST_F(LendingTest, MemoryThatWasNotLentAndShortPiecesGoByTheRing) {
  const Memory memory("lent-c", 2 << 20);
  std::string other(1 << 20, '\0');
  ASSERT_THAT(lent_->Add(memory.data(), memory.bytes(), memory.fd()), IsOk());
  EXPECT_EQ(Put(other.data(), other.size(), 4), "right");
  EXPECT_EQ(Put(memory.data(), 1 << 20, 5, true, /*piece=*/4096), "right");
  EXPECT_EQ(memory.Descriptors(), 2);
  // Beyond its end by a byte: not inside.
  EXPECT_EQ(Put(memory.data() + memory.bytes() - 100'000, 100'000, 6), "right");
}

TEST_F(LendingTest, StoreLetsGoWhenMemoryIsTakenBack) {
  const Memory memory("lent-d", 2 << 20);
  ASSERT_THAT(lent_->Add(memory.data(), memory.bytes(), memory.fd()), IsOk());
  EXPECT_EQ(Put(memory.data(), 1 << 20, 3), "right");
  EXPECT_EQ(memory.Descriptors(), 3);
  // No call is under way, and none comes.
  lent_->Remove(memory.data());
  handler_.Await([&] { return memory.Descriptors() == 1; });
  EXPECT_EQ(memory.StoreMappings(), 0);
  // Memory at the same place is other memory.
  ASSERT_THAT(lent_->Add(memory.data(), memory.bytes(), memory.fd()), IsOk());
  EXPECT_EQ(Put(memory.data(), 1 << 20, 9), "right");
  EXPECT_EQ(memory.Descriptors(), 3);
}

TEST_F(LendingTest, StoreLetsGoWhenTheConnectionEnds) {
  const Memory memory("lent-e", 2 << 20);
  ASSERT_THAT(lent_->Add(memory.data(), memory.bytes(), memory.fd()), IsOk());
  EXPECT_EQ(Put(memory.data(), 1 << 20, 3), "right");
  channel_.reset();
  handler_.Await([&] { return memory.Descriptors() == 2 && memory.StoreMappings() == 0; });
}

TEST_F(LendingTest, LargeMemoryIsLetGoToo) {
  const Memory memory("lent-m", 256 << 20);
  ASSERT_THAT(lent_->Add(memory.data(), memory.bytes(), memory.fd()), IsOk());
  EXPECT_EQ(Put(memory.data() + (100 << 20), 1 << 20, 3), "right");
  EXPECT_EQ(memory.StoreMappings(), 1);
  channel_.reset();
  handler_.Await([&] { return memory.Descriptors() == 2 && memory.StoreMappings() == 0; });
}

// A store that maps 8 MiB of its clients' memory, 2 MiB of one.
class FewMappingsTest : public LendingTest {
 protected:
  FewMappingsTest() : LendingTest(8 << 20) {}
};

TEST_F(FewMappingsTest, ConnectionHasAQuarterOfThem) {
  const Memory large("lent-n", (2 << 20) + 4096);
  const Memory a("lent-o", 1 << 20);
  const Memory b("lent-p", 1 << 20);
  const Memory c("lent-q", 1 << 20);
  uint32_t seed = 0;
  for (const Memory* memory : {&large, &a, &b, &c}) {
    ASSERT_THAT(lent_->Add(memory->data(), memory->bytes(), memory->fd()), IsOk());
    EXPECT_EQ(Put(memory->data(), 900'000, ++seed), "right");
    EXPECT_EQ(memory->Descriptors(), 3);  // read where it is, mapped or not
  }
  EXPECT_EQ(large.StoreMappings(), 0);
  EXPECT_EQ(a.StoreMappings(), 1);
  EXPECT_EQ(b.StoreMappings(), 1);
  EXPECT_EQ(c.StoreMappings(), 0);
  // What is given back is for others.
  lent_->Remove(a.data());
  handler_.Await([&] { return a.StoreMappings() == 0; });
  const Memory d("lent-r", 1 << 20);
  ASSERT_THAT(lent_->Add(d.data(), d.bytes(), d.fd()), IsOk());
  EXPECT_EQ(Put(d.data(), 900'000, 9), "right");
  EXPECT_EQ(d.StoreMappings(), 1);
}

TEST_F(FewMappingsTest, AllConnectionsHaveNoMoreThanThereAre) {
  const Memory memory("lent-s", 2 << 20);
  ASSERT_THAT(lent_->Add(memory.data(), memory.bytes(), memory.fd()), IsOk());
  std::vector<std::unique_ptr<Channel>> others;
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(Put(memory.data(), 1 << 20, 3), "right");
    others.push_back(std::move(channel_));
    channel_ = MakeShmChannel(io_.get(), options_);
  }
  EXPECT_EQ(memory.StoreMappings(), 4);
  others.clear();
  handler_.Await([&] { return memory.StoreMappings() == 0; });
  EXPECT_EQ(Put(memory.data(), 1 << 20, 3), "right");
  EXPECT_EQ(memory.StoreMappings(), 1);
}

TEST_F(LendingTest, MoreBuffersThanMayBeLentGoByTheRing) {
  std::vector<std::unique_ptr<Memory>> memories;
  for (int i = 0; i < 20; ++i) {
    memories.push_back(std::make_unique<Memory>(absl::StrCat("lent-f", i), 1 << 20));
    ASSERT_THAT(lent_->Add(memories.back()->data(), 1 << 20, memories.back()->fd()), IsOk());
  }
  int lent = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(Put(memories[i]->data(), 500'000, i), "right");
    lent += memories[i]->Descriptors() == 3 ? 1 : 0;
  }
  EXPECT_EQ(lent, 16);
  // One that is taken back makes place for another.
  lent_->Remove(memories[0]->data());
  EXPECT_EQ(Put(memories[19]->data(), 500'000, 7), "right");
  EXPECT_EQ(memories[19]->Descriptors(), 3);
}

TEST_F(LendingTest, OnePutFromManyBuffersAndOtherMemory) {
  const Memory a("lent-g", 1 << 20);
  const Memory b("lent-h", 1 << 20);
  std::string other(300'000, '\0');
  ASSERT_THAT(lent_->Add(a.data(), a.bytes(), a.fd()), IsOk());
  ASSERT_THAT(lent_->Add(b.data(), b.bytes(), b.fd()), IsOk());
  // The stream's pieces lie here and there.
  class Scattered final : public PayloadSource {
   public:
    explicit Scattered(std::vector<iovec> pieces) : pieces_(std::move(pieces)) {
      for (const iovec& piece : pieces_) left_ += piece.iov_len;
    }
    uint64_t remaining() const override { return left_; }
    void NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) override {
      while (max_bytes > 0 && max_pieces > 0 && !pieces_.empty()) {
        iovec& front = pieces_.front();
        const size_t n = std::min(max_bytes, front.iov_len);
        out->push_back({front.iov_base, n});
        front = {static_cast<char*>(front.iov_base) + n, front.iov_len - n};
        if (front.iov_len == 0) pieces_.erase(pieces_.begin());
        max_bytes -= n;
        left_ -= n;
        --max_pieces;
      }
    }
    bool checked_by_digests() const override { return true; }

   private:
    std::vector<iovec> pieces_;
    uint64_t left_ = 0;
  };
  std::vector<iovec> pieces;
  for (size_t i = 0; i < 6; ++i) {
    pieces.push_back({a.data() + i * 50'000, 50'000});
    pieces.push_back({b.data() + i * 40'000, 40'000});
    pieces.push_back({other.data() + i * 1'000, 1'000});
    pieces.push_back({other.data() + 100'000 + i * 33'000, 33'000});
  }
  size_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  const std::string pattern = Pattern(8, total);
  size_t at = 0;
  for (const iovec& piece : pieces) {
    std::copy_n(pattern.begin() + static_cast<std::ptrdiff_t>(at), piece.iov_len,
                static_cast<char*>(piece.iov_base));
    at += piece.iov_len;
  }
  TestCall call;
  CallGroup group;
  call.after_ready = [&] { return std::make_unique<Scattered>(pieces); };
  channel_->Start(
      MakeSpec(FrameType::kPut, absl::StrCat("ready ", total, " 70000 8"), absl::Seconds(20)),
      &call, &group);
  io_->Wait(group);
  ASSERT_TRUE(call.status->ok()) << *call.status;
  EXPECT_EQ(call.meta, "right");
  EXPECT_EQ(a.Descriptors(), 3);
  EXPECT_EQ(b.Descriptors(), 3);
}

TEST_F(LendingTest, ManyThreadsLendAndTakeBack) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      for (uint32_t round = 0; round < 15; ++round) {
        const Memory memory(absl::StrCat("lent-i", i, "-", round), 1 << 20);
        ASSERT_THAT(lent_->Add(memory.data(), memory.bytes(), memory.fd()), IsOk());
        EXPECT_EQ(Put(memory.data() + 11, 900'000, 100 + i * 20 + round), "right");
        lent_->Remove(memory.data());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(LentMemoryTest, FindsWhatIsWhollyInside) {
  const Memory a("lent-j", 8192);
  LentMemory lent;
  ASSERT_THAT(lent.Add(a.data(), 8192, a.fd()), IsOk());
  const auto table = lent.table();
  EXPECT_NE(table->Find(a.data(), 8192), nullptr);
  EXPECT_NE(table->Find(a.data() + 8191, 1), nullptr);
  EXPECT_EQ(table->Find(a.data() + 8191, 2), nullptr);
  EXPECT_EQ(table->Find(a.data() + 8192, 1), nullptr);
  EXPECT_EQ(table->Find(a.data() - 1, 2), nullptr);
  EXPECT_EQ(table->Find(a.data() + 1, UINT64_MAX), nullptr);
}

TEST(LentMemoryTest, WhatIsHandedOverCannotWrite) {
  const Memory a("lent-k", 8192);
  LentMemory lent;
  ASSERT_THAT(lent.Add(a.data(), 8192, a.fd()), IsOk());
  const auto table = lent.table();
  const int fd = table->Find(a.data(), 1)->fd.get();
  EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_NE(ftruncate(fd, 0), 0);
  EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
}

}  // namespace
}  // namespace cistern::transport
