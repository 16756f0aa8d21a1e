// A program that forks while its threads use the library, and whose children end by exit(). It also
// counts the library's threads: here are no others.
//   forker MASTER TOKEN_FILE
// Ends with 0, or says which child, or which call of its own, went wrong.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/test_util.h"
#include "client/client.h"

namespace {

using namespace cistern;  // NOLINT: a program of one file

// Statics: destroyed by exit().
std::unique_ptr<Client> g_client;
std::shared_ptr<Namespace> g_ns;
Buffer g_buffer;

constexpr uint64_t kBytes = 200'000;

int Threads() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                        std::filesystem::directory_iterator()));
}

void Fork() {
  std::atomic<bool> stop{false};
  std::atomic<int> bad{0};
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      char* const memory = static_cast<char*>(g_buffer.data()) + t * kBytes;
      const std::string expected = PatternBytes(t, kBytes);
      const Span span{memory, kBytes};
      const KeyId id = *g_ns->Hash("forker " + std::to_string(t));
      FillPattern(t, memory, kBytes);
      const PutItem put{.id = id, .memory = {.spans = {&span, 1}}};
      (void)g_ns->BatchPut({&put, 1});
      const GetItem get{.id = id, .memory = {.spans = {&span, 1}}};
      while (!stop) {
        const ChunkCode code = g_ns->BatchGet({&get, 1}).items[0].code;
        (code == ChunkCode::kOk && std::string_view(memory, kBytes) == expected ? good : bad)++;
      }
    });
  }
  while (good < 30) std::this_thread::yield();
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      // As from main: destructors of statics, thread-local objects and the standard library's end.
      std::exit(absl::IsFailedPrecondition(g_client->Ping()) ? 0 : 1);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      std::cerr << "child " << i << " ended with status " << status << "\n";
      ++bad;
    }
  }
  const int before = good;
  while (good < before + 30 && bad == 0) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  if (bad != 0) {
    std::cerr << bad << " went wrong\n";
    _exit(5);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  ClientOptions options;
  options.master_address = argv[1];
  options.pool_token_file = argv[2];
  options.deadline = absl::Seconds(30);
  auto client = Client::Connect(options);
  if (!client.ok()) return 3;
  g_client = *std::move(client);
  auto ns = g_client->OpenNamespace("test", "v1");
  auto buffer = g_client->AllocateBuffer(3 * kBytes);
  if (!ns.ok() || !buffer.ok()) return 4;
  g_ns = *std::move(ns);
  g_buffer = *std::move(buffer);
  const GetItem absent{.id = *g_ns->Hash("absent"), .memory = {}};
  (void)g_ns->BatchGetAsync({&absent, 1}).Take();
  const int threads = Threads();
  std::cerr << threads << " threads with this one\n";
  if (threads > 3) return 6;
  Fork();
  g_buffer = Buffer();
  g_ns.reset();
  g_client.reset();
  return 0;
}
