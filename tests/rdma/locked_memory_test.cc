// A client whose locked memory does not do for its buffers.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "client/client.h"
#include "gtest/gtest.h"
#include "transport/rdma/rdma_testing.h"

namespace cistern {
namespace {

constexpr uint64_t kBytes = 8 << 20;

// Runs `act` in a child without privileges and with a limit of 4 MiB; its result is the child's.
int WithLittleLockedMemory(const std::function<int()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {4 << 20, 4 << 20};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(100);
    _exit(act());
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class LockedMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<transport::rdma::ChosenPort> ports;
    CISTERN_TEST_PORTS_OR_SKIP(ports);
    if (getuid() != 0) GTEST_SKIP() << "skipped: needs root, to become somebody with a limit";
  }
  std::string memory_ = std::string(kBytes, 'm');
};

TEST_F(LockedMemoryTest, RegisteringSaysWhatToDoWhereRdmaIsAskedFor) {
  const int outcome = WithLittleLockedMemory([&] {
    ClientOptions options;
    options.lazy = true;
    options.wire = Wire::kRdma;
    auto client = Client::Connect(options);
    if (!client.ok()) return 1;
    if (!(*client)->RegisterBuffer({.data = memory_.data(), .bytes = 64 << 10}).ok()) return 2;
    const auto refused = (*client)->RegisterBuffer({.data = memory_.data(), .bytes = kBytes});
    if (refused.status().code() != absl::StatusCode::kResourceExhausted) return 3;
    const std::string text(refused.status().message());
    for (const char* word : {"ulimit -l", "LimitMEMLOCK", "4194304", "8388608"}) {
      if (text.find(word) == std::string::npos) return 4;
    }
    // Nothing of it stays: what fits is taken as before.
    return (*client)->RegisterBuffer({.data = memory_.data(), .bytes = 64 << 10}).ok() ? 0 : 5;
  });
  EXPECT_EQ(outcome, 0);
}

TEST_F(LockedMemoryTest, RegisteringGoesOnWithAWarningWhereAnyWireWillDo) {
  const int outcome = WithLittleLockedMemory([&] {
    ClientOptions options;
    options.lazy = true;
    std::string warnings;
    options.log_sink = [&](Severity severity, std::string_view text) {
      if (severity == Severity::kWarning) warnings += text;
    };
    auto client = Client::Connect(options);
    if (!client.ok()) return 1;
    if (!(*client)->RegisterBuffer({.data = memory_.data(), .bytes = kBytes}).ok()) return 2;
    return warnings.find("ulimit -l") != std::string::npos ? 0 : 3;
  });
  EXPECT_EQ(outcome, 0);
}

}  // namespace
}  // namespace cistern
