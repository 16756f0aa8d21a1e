// A store that is stopped (SIGSTOP) at any moment of a call and goes on later: calls end in time,
// and no byte lands in the caller's memory once they have.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/shm/shm.h"

namespace cistern::transport {
namespace {

constexpr size_t kBytes = 8 << 20;

// A server in a process of its own. Made before this process has threads.
class StoreProcess {
 public:
  explicit StoreProcess(const std::string& socket_path) {
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      TestHandler handler;
      ShmServerOptions options;
      options.socket_path = socket_path;
      auto server = ListenShm(options, &handler);
      [[maybe_unused]] const ssize_t n = write(ready[1], server.ok() ? "y" : "n", 1);
      for (;;) pause();
    }
    char answer = 'n';
    EXPECT_EQ(read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    close(ready[0]);
    close(ready[1]);
  }
  ~StoreProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // Returns when it has stopped.
  void Freeze() {
    kill(pid_, SIGSTOP);
    int status = 0;
    waitpid(pid_, &status, WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void Thaw() { kill(pid_, SIGCONT); }

 private:
  pid_t pid_ = -1;
};

class FreezeTest : public testing::Test {
 protected:
  FreezeTest() : store_(folder_ / "store.sock") {
    auto io = IoContext::Create({});
    EXPECT_THAT(io, IsOk());
    io_ = *std::move(io);
    fd_ = memfd_create("frozen", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd_, kBytes), 0);
    EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    memory_ = static_cast<char*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, /*offset=*/0));
    EXPECT_THAT(lent_->Add(memory_, kBytes, fd_), IsOk());
    ShmChannelOptions options;
    options.socket_path = folder_ / "store.sock";
    options.connections = 1;
    options.lent = lent_;
    channel_ = MakeShmChannel(io_.get(), options);
  }
  ~FreezeTest() override {
    channel_.reset();
    munmap(memory_, kBytes);
    close(fd_);
  }
  // A thread that stops the store after so long.
  std::thread FreezeAfter(absl::Duration delay) {
    return std::thread([this, delay] {
      Clock::Real().SleepFor(delay);
      store_.Freeze();
    });
  }
  // The store is done with all that it had begun.
  void Settle() {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(RoundTrip(*io_, *channel_, "echo x", absl::Seconds(20), /*small=*/false).ok());
    }
  }

  const TempDir folder_;
  StoreProcess store_;
  std::unique_ptr<IoContext> io_;
  const std::shared_ptr<LentMemory> lent_ = std::make_shared<LentMemory>();
  int fd_ = -1;
  char* memory_ = nullptr;
  std::unique_ptr<Channel> channel_;
};

TEST_F(FreezeTest, NothingLandsAfterAGetHasEnded) {
  Settle();
  int unfinished = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    PatternSink sink(memory_, kBytes, 100'000);
    TestCall call;
    call.sink = &sink;
    // From before the first byte to about when all is there.
    std::thread freezer = FreezeAfter(absl::Microseconds(100) * round);
    CallGroup group;
    const MonoTime start = Clock::Real().Mono();
    call.on_done = [&] { std::fill(memory_, memory_ + kBytes, '\xee'); };
    channel_->Start(MakeSpec(FrameType::kGet, absl::StrCat("get ", kBytes, " 65536 1"),
                             absl::Milliseconds(100)),
                    &call, &group);
    io_->Wait(group);
    EXPECT_LT(Clock::Real().Mono() - start, absl::Milliseconds(250) + absl::Milliseconds(700));
    freezer.join();
    if (!call.status->ok()) ++unfinished;
    store_.Thaw();
    Settle();
    EXPECT_EQ(std::count(memory_, memory_ + kBytes, '\xee'), static_cast<ptrdiff_t>(kBytes));
  }
  EXPECT_GT(unfinished, 0);
}

TEST_F(FreezeTest, PutsFromLentMemoryEndInTimeToo) {
  Settle();
  const std::string pattern = Pattern(2, kBytes);
  // The same bytes, and claimed to be checked: so they are lent.
  class Source final : public PayloadSource {
   public:
    explicit Source(char* data) : data_(data) {}
    uint64_t remaining() const override { return left_; }
    void NextPieces(size_t max_bytes, size_t, std::vector<iovec>* out) override {
      const size_t n = std::min(max_bytes, left_);
      out->push_back({data_, n});
      data_ += n;
      left_ -= n;
    }
    bool checked_by_digests() const override { return true; }

   private:
    char* data_;
    size_t left_ = kBytes;
  };
  int unfinished = 0;
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    std::copy(pattern.begin(), pattern.end(), memory_);
    TestCall call;
    call.after_ready = [&] { return std::make_unique<Source>(memory_); };
    std::thread freezer = FreezeAfter(absl::Microseconds(100) * round);
    CallGroup group;
    const MonoTime start = Clock::Real().Mono();
    channel_->Start(MakeSpec(FrameType::kPut, absl::StrCat("ready ", kBytes, " 1000000 2"),
                             absl::Milliseconds(100)),
                    &call, &group);
    io_->Wait(group);
    EXPECT_LT(Clock::Real().Mono() - start, absl::Milliseconds(250) + absl::Milliseconds(700));
    freezer.join();
    if (call.status->ok()) {
      EXPECT_EQ(call.meta, "right");
    } else {
      ++unfinished;
    }
    store_.Thaw();
    Settle();
  }
  EXPECT_GT(unfinished, 0);
}

}  // namespace
}  // namespace cistern::transport
