// A client of a real pool: one master and some stores, started for the test on loopback.
#ifndef CISTERN_TESTS_INTEGRATION_CLIENT_POOL_FIXTURE_H_
#define CISTERN_TESTS_INTEGRATION_CLIENT_POOL_FIXTURE_H_

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/eventually.h"
#include "base/test_util.h"
#include "client/client.h"
#include "tools/ctl/admin_client.h"
#include "tools/pool/child_process.h"
#include "tools/pool/local_pool.h"

namespace cistern {

class PoolFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kBufferBytes = uint64_t{160} << 20;

  void StartPool(uint64_t pool_bytes, int stores = 2) {
    pool::LocalPoolOptions options;
    options.stores = stores;
    options.pool_bytes = pool_bytes;
    StartPool(std::move(options));
  }
  void StartPool(pool::LocalPoolOptions options) {
    options.bin_dir = ".";  // where Bazel puts what a test needs
    pool_options_ = std::move(options);
    ASSERT_OK_AND_ASSIGN(pool_, pool::LocalPool::Start(pool_options_, Clock::Real()));
    ASSERT_OK_AND_ASSIGN(client_, Client::Connect(ConnectOptions()));
    ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("test", "v1"));
    ASSERT_OK_AND_ASSIGN(buffer_, client_->AllocateBuffer(kBufferBytes));
  }
  void TearDown() override {
    buffer_ = Buffer();
    ns_.reset();
    client_.reset();
    again_.clear();
  }

  ClientOptions ConnectOptions() const {
    ClientOptions options;
    options.master_address = pool_->connection().data;
    options.pool_token_file = pool_->connection().token_file;
    options.deadline = absl::Seconds(30);  // sanitizers and busy hosts are slow
    options.wire = wire_;
    options.rdma = rdma_;
    return options;
  }
  pid_t store_pid(int store) const { return pool_->pids()[1 + static_cast<size_t>(store)]; }

  // SIGKILL, and another process on the same folders (and another port).
  void KillStore(int store) {
    const pid_t pid = store_pid(store);
    kill(pid, SIGKILL);
    // Until it has let go of its files: a zombie, or reaped.
    ASSERT_TRUE(Eventually([&] {
      std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
      std::string stat;
      if (!std::getline(file, stat)) return true;
      return stat.substr(stat.rfind(')') + 2, 1) == "Z";
    }));
  }
  void StartStoreAgain(int store) {
    const std::string name = "store-" + std::to_string(store);
    ASSERT_OK_AND_ASSIGN(
        auto child,
        pool::ChildProcess::Start(
            {.name = name + " again",
             .argv = {"store/cistern-store", "--config", pool_->dir() + "/" + name + ".toml"},
             .log_path = pool_->dir() + "/" + name + "-again.log"},
            Clock::Real()));
    again_.push_back(std::move(child));
  }
  // How many stores the master has in a state.
  int StoresThatAre(const std::string& state) const {
    const admin::StatsReply stats = Stats();
    return static_cast<int>(std::count_if(stats.stores().begin(), stats.stores().end(),
                                          [&](const auto& s) { return s.state() == state; }));
  }

  KeyId Id(std::string_view key) const { return *ns_->Hash(key); }
  char* At(uint64_t offset) const { return static_cast<char*>(buffer_.data()) + offset; }

  // Puts the pattern of `seed` from the front half of the buffer; gets into its back half.
  ChunkCode Put(std::string_view key, uint64_t seed, uint64_t bytes,
                const PutOptions& options = {}) {
    FillPattern(seed, At(0), bytes);
    const Span span{At(0), bytes};
    const PutItem item{.id = Id(key), .memory = {.spans = {&span, 1}}, .key = key};
    const BatchResult result = ns_->BatchPut({&item, 1}, options);
    message_ = result.message;
    return result.items[0].code;
  }
  ChunkCode Get(std::string_view key, uint64_t bytes, const GetOptions& options = {}) {
    std::memset(At(kBufferBytes / 2), 0, bytes);
    const Span span{At(kBufferBytes / 2), bytes};
    const GetItem item{.id = Id(key), .memory = {.spans = {&span, 1}}};
    const BatchResult result = ns_->BatchGet({&item, 1}, options);
    message_ = result.message;
    last_ = result.items[0];
    return last_.code;
  }
  // Whether the last Get brought the pattern of `seed`.
  bool Brought(uint64_t seed, uint64_t bytes) const {
    return std::string_view(At(kBufferBytes / 2), bytes) == PatternBytes(seed, bytes);
  }
  static PutOptions Visible() {
    PutOptions options;
    options.wait_visible = true;
    return options;
  }
  admin::StatsReply Stats() const {
    auto admin = ctl::AdminClient::Make(pool_->connection(), absl::Seconds(5));
    EXPECT_OK(admin);
    auto stats = (*admin)->Stats();
    EXPECT_OK(stats);
    return *stats;
  }

  Wire wire_ = Wire::kAuto;
  RdmaOptions rdma_;
  pool::LocalPoolOptions pool_options_;
  std::unique_ptr<pool::LocalPool> pool_;
  std::vector<std::unique_ptr<pool::ChildProcess>> again_;  // stores that were started again
  std::unique_ptr<Client> client_;
  std::shared_ptr<Namespace> ns_;
  Buffer buffer_;
  ChunkResult last_;
  std::string message_;
};

}  // namespace cistern

#endif  // CISTERN_TESTS_INTEGRATION_CLIENT_POOL_FIXTURE_H_
