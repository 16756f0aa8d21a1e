// Engines fork workers while the library is at work.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <iostream>
#include <thread>

#include "tests/integration/trouble/trouble_fixture.h"

namespace cistern {
namespace {

constexpr uint64_t kBytes = 1 << 20;
constexpr int kThreads = 3;

class ForkTest : public TroubleFixture {
 protected:
  void SetUp() override {
    StartTroublePool();
    if (HasFatalFailure()) return;
    for (int i = 0; i < kThreads; ++i) {
      ASSERT_EQ(Put(Key(i), static_cast<uint64_t>(i), kBytes, Visible()), ChunkCode::kOk);
    }
  }
  // However a test ends, no thread of its own outlives what it uses.
  void TearDown() override {
    Rest();
    TroubleFixture::TearDown();
  }
  static std::string Key(int i) { return "key " + std::to_string(i); }

  // The parent's load: gets and puts that must all succeed, from several threads, until Rest().
  void Work() {
    for (int t = 0; t < kThreads; ++t) {
      workers_.emplace_back([this, t] {
        char* const memory = At(static_cast<uint64_t>(t) * 8 * kBytes);
        const Span into{memory, kBytes};
        const Span from{memory + 2 * kBytes, 100'000};
        const GetItem get{.id = Id(Key(t)), .memory = {.spans = {&into, 1}}};
        const std::string expected = PatternBytes(static_cast<uint64_t>(t), kBytes);
        FillPattern(99, from.data, from.bytes);
        for (int round = 0; !rest_; ++round) {
          std::memset(memory, 0, kBytes);
          const ChunkCode got = round % 2 == 0 ? ns_->BatchGet({&get, 1}).items[0].code
                                               : ns_->BatchGetAsync({&get, 1}).Take().items[0].code;
          const bool right = got == ChunkCode::kOk && std::string_view(memory, kBytes) == expected;
          const std::string key = "p" + std::to_string(t) + "." + std::to_string(round % 20);
          const PutItem put{.id = Id(key), .memory = {.spans = {&from, 1}}};
          const ChunkCode stored = ns_->BatchPut({&put, 1}).items[0].code;
          const bool kept = stored == ChunkCode::kOk || stored == ChunkCode::kPresent;
          (right && kept ? good_ : bad_).fetch_add(1);
        }
      });
    }
  }
  void Rest() {
    rest_ = true;
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  // Forks `child`, which must end within 30 s, with 0.
  static void InAChild(const std::function<int()>& child) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      alarm(30);  // instead of hanging
      _exit(child());
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }

  // Each call's answer in a child; 0, or the number of the first that was not told so.
  int CallEverything() {
    const KeyId id = Id("key 0");
    const Span span{At(0), kBytes};
    const GetItem get{.id = id, .memory = {.spans = {&span, 1}}};
    const PutItem put{.id = id, .memory = {.spans = {&span, 1}}};
    const LeaseId lease{};
    const auto told = [](const absl::Status& s) { return absl::IsFailedPrecondition(s); };
    if (!told(client_->Ping())) return 1;
    if (!told(client_->OpenNamespace("test", "v1").status())) return 2;
    if (!told(client_->AllocateBuffer(4'096).status())) return 3;
    if (!told(client_->RegisterBuffer({.data = At(0), .bytes = 4'096}).status())) return 4;
    if (!told(client_
                  ->RegisterLayout({.bases = {At(0)},
                                    .unit_stride_bytes = 4'096,
                                    .piece_bytes = 4'096,
                                    .unit_count = 1})
                  .status())) {
      return 5;
    }
    if (!told(client_->UnregisterLayout(LayoutId{1}))) return 6;
    if (!told(ns_->Lookup({&id, 1}).status())) return 7;
    if (!told(ns_->Exists({&id, 1}).status())) return 8;
    if (!told(ns_->Release({&lease, 1}))) return 9;
    if (!told(ns_->Prefetch({&id, 1}))) return 10;
    if (!told(ns_->BatchGet({&get, 1}).status)) return 11;
    if (!told(ns_->BatchPut({&put, 1}).status)) return 12;
    if (!told(ns_->Remove({&id, 1}).status)) return 13;
    if (!told(ns_->RemoveAll().status())) return 14;
    if (!told(ns_->Adopt("").status())) return 15;
    if (!told(ns_->LookupAsync({&id, 1}).Take().status())) return 16;
    if (!told(ns_->BatchGetAsync({&get, 1}).Take().status)) return 17;
    if (!told(ns_->BatchPutAsync({&put, 1}).Take().status)) return 18;
    if (!client_->pool_id().IsZero()) return 19;
    (void)client_->stats();
    return 0;
  }

  std::atomic<bool> rest_{false};
  std::atomic<int> good_{0};
  std::atomic<int> bad_{0};
  std::vector<std::thread> workers_;
};

TEST_F(ForkTest, ChildrenForkedUnderLoadAreToldAndTheParentGoesOn) {
  Work();
  for (int i = 0; i < 30; ++i) {
    ASSERT_NO_FATAL_FAILURE(InAChild([&] {
      const int told = CallEverything();
      if (told != 0) return told;
      // Some end their copies in order, some just end.
      if (i % 2 == 0) {
        buffer_ = Buffer();
        ns_.reset();
        client_.reset();
      }
#ifndef __SANITIZE_THREAD__  // which allows a fork's child no threads
      if (i % 3 == 0) {
        const auto own = Client::Connect(ConnectOptions());
        if (!own.ok()) return 50;
        const auto ns = (*own)->OpenNamespace("test", "v1");
        auto buffer = (*own)->AllocateBuffer(kBytes);
        if (!ns.ok() || !buffer.ok()) return 51;
        const Span span{buffer->data(), kBytes};
        const GetItem get{.id = *(*ns)->Hash("key 1"), .memory = {.spans = {&span, 1}}};
        if ((*ns)->BatchGet({&get, 1}).items[0].code != ChunkCode::kOk) return 52;
        if (std::string_view(static_cast<char*>(span.data), kBytes) != PatternBytes(1, kBytes)) {
          return 53;
        }
      }
#endif
      return 0;
    }));
  }
  const int before = good_;
  ASSERT_TRUE(Eventually([&] { return good_ >= before + 20; }));
  Rest();
  EXPECT_EQ(bad_, 0);
}

// A program whose children end as programs do, with the parent's client among their statics.
TEST_F(ForkTest, ChildrenThatExitHarmNobody) {
  ASSERT_OK_AND_ASSIGN(
      const auto forker,
      pool::ChildProcess::Start({.name = "forker",
                                 .argv = {"tests/integration/trouble/forker",
                                          pool_->connection().data, pool_->connection().token_file},
                                 .log_path = pool_->dir() + "/forker.log"},
                                Clock::Real()));
  ASSERT_TRUE(forker->WaitFor(absl::Seconds(100))) << forker->LogTail();
  EXPECT_EQ(forker->exit_code(), 0) << forker->LogTail();
}

TEST_F(ForkTest, AClientComesAndGoesQuickly) {
  absl::Duration connect = absl::InfiniteDuration();
  absl::Duration close = absl::InfiniteDuration();
  for (int i = 0; i < 10; ++i) {
    MonoTime start = Clock::Real().Mono();
    ASSERT_OK_AND_ASSIGN(auto client, Client::Connect(ConnectOptions()));
    connect = std::min(connect, Clock::Real().Mono() - start);
    ASSERT_OK_AND_ASSIGN(const auto ns, client->OpenNamespace("test", "v1"));
    const std::vector<KeyId> ids = {Id(Key(0)), Id(Key(1))};
    ASSERT_OK(ns->Lookup(ids));
    start = Clock::Real().Mono();
    client.reset();
    close = std::min(close, Clock::Real().Mono() - start);
  }
  std::cout << "  connect " << absl::FormatDuration(connect) << ", close "
            << absl::FormatDuration(close) << " (best of ten)\n";
  // The best of ten: a busy host is no fault of the library.
  EXPECT_LT(connect, absl::Milliseconds(50));
  EXPECT_LT(close, absl::Milliseconds(100));
}

}  // namespace
}  // namespace cistern
