// A real pool whose daemons are killed and started again in the midst of what they do.
#ifndef CISTERN_TESTS_INTEGRATION_STORE_RESTART_FIXTURE_H_
#define CISTERN_TESTS_INTEGRATION_STORE_RESTART_FIXTURE_H_

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "tests/integration/client/pool_fixture.h"
#include "tools/ctl/connection.h"
#include "tools/pool/child_process.h"
#include "tools/pool/local_pool.h"

namespace cistern {

// Daemons by number: 0 is the master, 1 the first store.
class RestartFixture : public PoolFixture {
 protected:
  static constexpr size_t kMaster = 0;
  static constexpr size_t kStore = 1;

  void StartPoolWith(pool::LocalPoolOptions options) {
    options.bin_dir = ".";  // where Bazel puts what a test needs
    ASSERT_OK_AND_ASSIGN(pool_, pool::LocalPool::Start(options, Clock::Real()));
    ASSERT_OK_AND_ASSIGN(client_, Client::Connect(ConnectOptions()));
    ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("test", "v1"));
    ASSERT_OK_AND_ASSIGN(buffer_, client_->AllocateBuffer(kBufferBytes));
    // A restarted master is found where it was.
    ASSERT_OK_AND_ASSIGN(const ctl::Endpoints at,
                         ctl::ReadEndpointsFile(pool_->master_endpoints_file()));
    ASSERT_OK_AND_ASSIGN(const ctl::HostPort data, ctl::SplitHostPort(at.data));
    ASSERT_OK_AND_ASSIGN(const ctl::HostPort grpc, ctl::SplitHostPort(at.grpc));
    sets_[kMaster] = {"data_port=" + data.port, "grpc_port=" + grpc.port};
    for (const std::string& set : options.master_set) sets_[kMaster].push_back(set);
    for (int i = 0; i < options.stores; ++i) {
      sets_[kStore + static_cast<size_t>(i)] = options.store_set;
    }
  }
  void TearDown() override {
    PoolFixture::TearDown();
    again_.clear();
  }

  pid_t PidOf(size_t daemon) const {
    const auto it = again_.find(daemon);
    return it != again_.end() ? it->second->pid() : pool_->pids()[daemon];
  }
  // As a crash or the out-of-memory killer: nothing is said or written any more.
  void Kill(size_t daemon) {
    const auto it = again_.find(daemon);
    if (it != again_.end()) {
      it->second->Signal(SIGKILL);
      ASSERT_TRUE(it->second->WaitFor(absl::Seconds(20)));
      return;
    }
    const pid_t pid = pool_->pids()[daemon];
    kill(pid, SIGKILL);
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);  // the pool finds it ended
  }
  // Starts it again, with its configuration.
  void StartAgain(size_t daemon, const std::vector<std::string>& more_arguments = {}) {
    const std::string name = daemon == kMaster ? "master" : "store-" + std::to_string(daemon - 1);
    const std::string program = daemon == kMaster ? "master/cistern-master" : "store/cistern-store";
    pool::ChildProcess::Options child;
    child.name = name + " again";
    child.argv = {program, "--config", pool_->dir() + "/" + name + ".toml"};
    for (const std::string& set : sets_[daemon]) {
      child.argv.insert(child.argv.end(), {"--set", set});
    }
    child.argv.insert(child.argv.end(), more_arguments.begin(), more_arguments.end());
    child.log_path = pool_->dir() + "/" + name + ".log";
    ASSERT_OK_AND_ASSIGN(again_[daemon],
                         pool::ChildProcess::Start(std::move(child), Clock::Real()));
  }
  // Starts it again where it must not start; its exit code, and its log in `log_`.
  int StartInVain(size_t daemon) {
    StartAgain(daemon);
    EXPECT_TRUE(again_[daemon]->WaitFor(absl::Seconds(30))) << again_[daemon]->LogTail();
    log_ = again_[daemon]->LogTail();
    return again_[daemon]->exit_code();
  }
  std::string LogOf(size_t daemon) {
    return again_.contains(daemon) ? again_[daemon]->LogTail() : std::string();
  }
  std::string SegmentDir(int store = 0) const {
    return pool_->segment_dir() + "/store-" + std::to_string(store);
  }
  std::string SegmentFile(int store = 0) const { return SegmentDir(store) + "/dram-0"; }
  std::string StateOf(int store) const {
    const admin::StatsReply stats = Stats();
    for (const auto& s : stats.stores()) {
      if (s.name() == "store-" + std::to_string(store)) return s.state();
    }
    return "";
  }
  // How many of "k<first>" and following are found by a lookup; 0 while the master is away.
  size_t Present(int first, int count) const {
    std::vector<KeyId> ids;
    for (int i = first; i < first + count; ++i) ids.push_back(Id("k" + std::to_string(i)));
    LookupOptions options;
    options.deadline = absl::Seconds(2);
    options.sparse = true;
    const auto found = ns_->Lookup(ids, options);
    if (!found.ok()) return 0;
    return static_cast<size_t>(std::count(found->present.begin(), found->present.end(), true));
  }
  absl::StatusOr<std::unique_ptr<ctl::AdminClient>> Admin() const {
    return ctl::AdminClient::Make(pool_->connection(), absl::Seconds(30));
  }
  // The version of a chunk's first replica, by the master's index; 0 = it has none.
  uint64_t VersionOf(const std::string& key) const {
    admin::StatChunkRequest request;
    request.set_namespace_name("test");
    request.set_key(key);
    const auto admin = Admin();
    EXPECT_OK(admin);
    const auto reply = (*admin)->StatChunk(request);
    return reply.ok() && reply->chunk().replicas_size() > 0 ? reply->chunk().replicas(0).version()
                                                            : 0;
  }

  std::string log_;

 private:
  std::map<size_t, std::vector<std::string>> sets_;
  std::map<size_t, std::unique_ptr<pool::ChildProcess>> again_;
};

}  // namespace cistern

#endif  // CISTERN_TESTS_INTEGRATION_STORE_RESTART_FIXTURE_H_
