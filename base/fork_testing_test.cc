#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace cistern {
namespace {

// What malloc keeps per thread does not answer sizes that change all the time.
void Allocate(unsigned round) {
  std::vector<std::unique_ptr<char[]>> held;
  for (unsigned i = 0; i < 200; ++i) {
    held.push_back(std::make_unique<char[]>(16 + (round * 7919 + i * 104'729) % 60'000));
  }
}

TEST(ForkTesting, AForksChildCanAllocateWhateverThreadsDo) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&stop, t] {
      for (unsigned round = t; !stop; round += 3) Allocate(round);
    });
  }
  int bad = 0;
  for (unsigned i = 0; i < 40; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a lock held for ever ends the child, and the test sees it
      for (unsigned round = 0; round < 3; ++round) Allocate(i + round);
      _exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) ++bad;
    if (bad > 0) break;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bad, 0);
}

}  // namespace
}  // namespace cistern
