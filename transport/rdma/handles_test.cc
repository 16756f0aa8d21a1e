// Real verbs through the table and the owners.
#include "transport/rdma/handles.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/rdma/loopback_testing.h"
#include "transport/rdma/rdma_testing.h"

namespace cistern::transport::rdma {
namespace {

constexpr size_t kBytes = 64 << 10;
constexpr unsigned kRemoteWrite = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

ibv_send_wr Write(ibv_sge* piece, uint64_t to, uint32_t key) {
  ibv_send_wr request = {};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.sg_list = piece;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = to;
  request.wr.rdma.rkey = key;
  return request;
}

// Whole pages, and nobody else's: where the kernel does not copy registered pages at a fork, a
// child has none of what shares one with them (verbs.h). Unmapped with its owner.
class Pages {
 public:
  explicit Pages(char fill)
      : data_(static_cast<char*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    Fill(fill);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(data_, kBytes); }
  void Fill(char byte) { std::memset(data_, byte, kBytes); }
  char* data() { return data_; }
  std::string text() const { return std::string(data_, kBytes); }

 private:
  char* data_;
};

// A connection between a port's address and (by default) itself, and registered memory at both
// ends.
class HandlesTest : public ::testing::Test {
 protected:
  void Connect(const std::string& from, const std::string& to) {
    auto connected = Loopback::Connect(from, to);
    ASSERT_TRUE(connected.ok()) << connected.status();
    pair_ = *std::move(connected);
    auto source = Register(pair_->client_domain(), source_.data(), kBytes, 0);
    auto target =
        Register(pair_->server_domain(), target_.data(), kBytes, kRemoteWrite | IBV_ACCESS_MW_BIND);
    ASSERT_TRUE(source.ok() && target.ok()) << source.status() << target.status();
    source_region_ = *std::move(source);
    target_region_ = *std::move(target);
    piece_ = {reinterpret_cast<uintptr_t>(source_.data()), kBytes, source_region_->lkey};
  }
  uint64_t target_address() { return reinterpret_cast<uintptr_t>(target_.data()); }
  absl::StatusOr<ibv_wc_status> WriteBy(uint32_t key) {
    return PostAndWait(pair_->client(), Write(&piece_, target_address(), key));
  }

  Pages source_{'s'};
  Pages target_{'t'};
  std::unique_ptr<Loopback> pair_;
  MemoryRegion source_region_;
  MemoryRegion target_region_;
  ibv_sge piece_ = {};
};

TEST_F(HandlesTest, AWriteLandsInRegisteredMemory) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  for (const ChosenPort& port : ports) {
    SCOPED_TRACE(port.name());
    source_region_.reset();
    target_region_.reset();
    target_.Fill('t');
    ASSERT_NO_FATAL_FAILURE(Connect(port.address, port.address));
    EXPECT_EQ(*WriteBy(target_region_->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(target_.text(), std::string(kBytes, 's'));
    source_region_.reset();
    target_region_.reset();
  }
}

TEST_F(HandlesTest, AWriteCrossesTheCable) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  if (ports.size() < 3) GTEST_SKIP() << "skipped: not the two devices of tools/rdma-vm --pair";
  ASSERT_NO_FATAL_FAILURE(Connect(ports[1].address, ports[2].address));
  EXPECT_EQ(*WriteBy(target_region_->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(target_.text(), std::string(kBytes, 's'));
}

TEST_F(HandlesTest, AWriteByAWrongKeyIsRefusedAndChangesNothing) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  ASSERT_NO_FATAL_FAILURE(Connect(ports[0].address, ports[0].address));
  EXPECT_EQ(*WriteBy(target_region_->rkey ^ 0x100), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(target_.text(), std::string(kBytes, 't'));
}

TEST_F(HandlesTest, AWindowLetsWritesInUntilItIsInvalidated) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  if (!ports[0].limits.windows_2b) GTEST_SKIP() << "skipped: the device has no windows of type 2B";
  ASSERT_NO_FATAL_FAILURE(Connect(ports[0].address, ports[0].address));
  // Made after its queue pair, so that it goes before it (handles.h).
  absl::StatusOr<MemoryWindow> window = AllocateWindow(pair_->server_domain());
  ASSERT_TRUE(window.ok()) << window.status();
  const uint32_t key = ibv_inc_rkey((*window)->rkey);
  ibv_send_wr bind = {};
  bind.opcode = IBV_WR_BIND_MW;
  bind.bind_mw.mw = window->get();
  bind.bind_mw.rkey = key;
  bind.bind_mw.bind_info = {target_region_.get(), target_address(), kBytes,
                            IBV_ACCESS_REMOTE_WRITE};
  ASSERT_EQ(*PostAndWait(pair_->server(), bind), IBV_WC_SUCCESS);
  EXPECT_EQ(*WriteBy(key), IBV_WC_SUCCESS);
  EXPECT_EQ(target_.text(), std::string(kBytes, 's'));

  ibv_send_wr invalidate = {};
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.invalidate_rkey = key;
  ASSERT_EQ(*PostAndWait(pair_->server(), invalidate), IBV_WC_SUCCESS);
  target_.Fill('t');
  EXPECT_EQ(*WriteBy(key), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(target_.text(), std::string(kBytes, 't'));
}

// Runs `act` in a fork's child; what it returns is the child's exit status.
int InChild(const std::function<int()>& act) {
  const pid_t child = fork();
  if (child == 0) _exit(act());
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(HandlesTest, AForksChildLetsGoWithoutDestroyingTheParents) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  ASSERT_NO_FATAL_FAILURE(Connect(ports[0].address, ports[0].address));
  ASSERT_EQ(InChild([this] {
              source_region_.reset();
              target_region_.reset();
              pair_.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(*WriteBy(target_region_->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(target_.text(), std::string(kBytes, 's'));
}

TEST_F(HandlesTest, AChildHasRegisteredMemoryWhereTheKernelCopiesIt) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  ASSERT_NO_FATAL_FAILURE(Connect(ports[0].address, ports[0].address));
  if ((*LoadVerbs())->fork_safety != ForkSafety::kByKernel) {
    GTEST_SKIP() << "skipped: on this kernel registered pages are not there in children";
  }
  EXPECT_EQ(InChild([this] { return source_.text() == std::string(kBytes, 's') ? 0 : 1; }), 0);
}

// What the device reads and writes stays the parent's memory although a child has come between.
TEST_F(HandlesTest, WritesLandWhereTheParentSeesThemAfterAFork) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  ASSERT_NO_FATAL_FAILURE(Connect(ports[0].address, ports[0].address));
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  RecordProperty("fork_safety", static_cast<int>((*LoadVerbs())->fork_safety));
  const pid_t child = fork();
  if (child == 0) {  // Lives, with its share of the pages, until the parent is through.
    char byte;
    close(gate[1]);
    _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
  }
  source_.Fill('S');  // A copy on write, were the pages shared.
  target_.Fill('T');
  EXPECT_EQ(*WriteBy(target_region_->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(target_.text(), std::string(kBytes, 'S'));
  close(gate[1]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(gate[0]);
}

TEST(RegisterTest, FailsForLockedMemoryWithTheLimitAndWhatToDo) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  if (getuid() != 0) GTEST_SKIP() << "skipped: needs root, to become somebody with a limit";
  std::string memory(4 << 20, 'm');
  const int outcome = InChild([&] {
    const rlimit limit = {1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setresuid(65534, 65534, 65534) != 0) return 1;
    absl::StatusOr<Context> context = OpenDevice(ports[0].device.c_str());
    if (!context.ok()) return 2;
    absl::StatusOr<ProtectionDomain> domain = AllocateProtectionDomain(context->get());
    if (!domain.ok()) return 3;
    if (!Register(domain->get(), memory.data(), 64 << 10, IBV_ACCESS_LOCAL_WRITE).ok()) return 4;
    const auto refused =
        Register(domain->get(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    if (refused.status().code() != absl::StatusCode::kResourceExhausted) return 5;
    const std::string text(refused.status().message());
    for (const char* word : {"ulimit -l", "LimitMEMLOCK", "1048576", "4194304"}) {
      if (text.find(word) == std::string::npos) return 6;
    }
    return 0;
  });
  EXPECT_EQ(outcome, 0);
}

}  // namespace
}  // namespace cistern::transport::rdma
