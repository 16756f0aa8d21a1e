#include "tools/pool/local_pool.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ctl/admin_client.h"

namespace cistern::pool {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(10);
constexpr absl::Duration kStopGrace = absl::Seconds(10);

absl::StatusOr<std::string> MakePrivateFolder(const std::string& parent) {
  std::string path = parent + "/cistern-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return ErrnoStatus(errno, std::string(absl::StrCat("cannot make a folder in ", parent)));
  }
  return path;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  return out ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

void RemoveFolder(const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string DaemonDir(const std::string& dir, int store) {
  return absl::StrCat(dir, "/store-", store);
}

}  // namespace

uint64_t SegmentBytes(const LocalPoolOptions& options) {
  return options.pool_bytes / static_cast<uint64_t>(options.stores) / 4096 * 4096;
}

std::string MasterToml(const std::string& dir) {
  return absl::StrCat("listen_address = \"127.0.0.1\"\n", "data_port = 0\n", "grpc_port = 0\n",
                      "http_port = 0\n", "data_dir = \"", dir, "/master\"\n",
                      "pool_token_file = \"", dir, "/token\"\n");
}

std::string StoreToml(const LocalPoolOptions& options, const std::string& dir,
                      const std::string& segment_dir, int index, const std::string& master_grpc) {
  return absl::StrCat("listen_address = \"127.0.0.1\"\n", "data_port = 0\n", "http_port = 0\n",
                      "master_address = \"", master_grpc, "\"\n", "data_dir = \"",
                      DaemonDir(dir, index), "\"\n", "segment_dir = \"",
                      DaemonDir(segment_dir, index), "\"\n", "pool_token_file = \"", dir,
                      "/token\"\n", "name = \"store-", index, "\"\n",
                      "expected_chunk = ", options.expected_chunk_bytes, "\n", "[[segment]]\n",
                      "size = ", SegmentBytes(options), "\n");
}

absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& package,
                                        const std::string& bin_dir) {
  std::vector<std::string> candidates;
  if (!bin_dir.empty()) {
    candidates = {absl::StrCat(bin_dir, "/", name), absl::StrCat(bin_dir, "/", package, "/", name)};
  } else {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    // Ours lies two folders deep in the build tree: tools/x/program.
    candidates = {self.parent_path() / name,
                  self.parent_path().parent_path().parent_path() / package / name};
  }
  std::string tried;
  for (const std::string& path : candidates) {
    if (access(path.c_str(), X_OK) == 0) return path;
    absl::StrAppend(&tried, tried.empty() ? "" : " nor ", path);
  }
  return absl::NotFoundError(absl::StrCat("no ", name, " at ", tried));
}

LocalPool::LocalPool(const LocalPoolOptions& options, Clock& clock)
    : options_(options), clock_(clock), ready_by_(clock.Mono() + options.ready_timeout) {}

absl::StatusOr<std::unique_ptr<LocalPool>> LocalPool::Start(const LocalPoolOptions& options,
                                                            Clock& clock) {
  std::unique_ptr<LocalPool> pool(new LocalPool(options, clock));
  CISTERN_RETURN_IF_ERROR(pool->MakeFolders());
  CISTERN_RETURN_IF_ERROR(pool->StartMaster());
  for (int i = 0; i < options.stores; ++i) {
    CISTERN_RETURN_IF_ERROR(pool->StartStore(i, pool->connection_.master));
  }
  CISTERN_RETURN_IF_ERROR(pool->WaitReady());
  return pool;
}

LocalPool::~LocalPool() {
  if (kept_) {
    for (auto& daemon : daemons_) daemon->Release();
    return;
  }
  (void)Stop();
  RemoveFolder(segment_dir_);
  RemoveFolder(dir_);
}

std::string LocalPool::master_endpoints_file() const { return dir_ + "/master/endpoints.json"; }

std::vector<pid_t> LocalPool::pids() const {
  std::vector<pid_t> out;
  for (const auto& daemon : daemons_) out.push_back(daemon->pid());
  return out;
}

absl::Status LocalPool::MakeFolders() {
  CISTERN_ASSIGN_OR_RETURN(dir_, MakePrivateFolder(options_.work_parent));
  CISTERN_ASSIGN_OR_RETURN(segment_dir_, MakePrivateFolder(options_.segment_parent));
  std::vector<std::string> folders = {dir_ + "/master"};
  for (int i = 0; i < options_.stores; ++i) {
    folders.push_back(DaemonDir(dir_, i));
    folders.push_back(DaemonDir(segment_dir_, i));
  }
  for (const std::string& folder : folders) {
    if (mkdir(folder.c_str(), 0700) != 0) return ErrnoStatus(errno, folder);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ChildProcess>> LocalPool::Launch(
    const std::string& program, const std::string& name,
    const std::vector<std::string>& arguments) {
  CISTERN_ASSIGN_OR_RETURN(const std::string path,
                           FindProgram("cistern-" + program, program, options_.bin_dir));
  ChildProcess::Options child{.name = name,
                              .argv = {path, "--config", absl::StrCat(dir_, "/", name, ".toml")},
                              .log_path = absl::StrCat(dir_, "/", name, ".log"),
                              .die_with_parent = !options_.outlive};
  child.argv.insert(child.argv.end(), arguments.begin(), arguments.end());
  return ChildProcess::Start(std::move(child), clock_);
}

absl::Status LocalPool::StartMaster() {
  CISTERN_RETURN_IF_ERROR(WriteFile(dir_ + "/master.toml", MasterToml(dir_)));
  CISTERN_ASSIGN_OR_RETURN(const auto init, Launch("master", "master", {"--init"}));
  if (!init->WaitFor(options_.ready_timeout) || init->exit_code() != 0) {
    return absl::UnavailableError(
        absl::StrCat("cistern-master --init ", init->Fate(), ":\n", init->LogTail()));
  }
  CISTERN_ASSIGN_OR_RETURN(auto master, RunMaster());
  daemons_.push_back(std::move(master));
  connection_.token_file = dir_ + "/token";
  return AwaitMaster();
}

absl::StatusOr<std::unique_ptr<ChildProcess>> LocalPool::RunMaster() {
  std::vector<std::string> arguments = options_.master_arguments;
  for (const std::string& set : options_.master_set)
    arguments.insert(arguments.end(), {"--set", set});
  return Launch("master", "master", arguments);
}

absl::Status LocalPool::AwaitMaster() {
  CISTERN_ASSIGN_OR_RETURN(const ctl::Endpoints endpoints, AwaitEndpoints(dir_ + "/master"));
  connection_.master = endpoints.grpc;
  connection_.data = endpoints.data;
  return absl::OkStatus();
}

absl::Status LocalPool::RestartMaster() {
  ready_by_ = clock_.Mono() + options_.ready_timeout;
  std::unique_ptr<ChildProcess>& master = daemons_.front();
  master->Signal(SIGKILL);
  if (!master->WaitFor(kStopGrace)) return absl::InternalError("the master cannot be killed");
  // A killed master leaves its ports behind.
  unlink(master_endpoints_file().c_str());
  CISTERN_ASSIGN_OR_RETURN(master, RunMaster());
  return AwaitMaster();
}

absl::Status LocalPool::StartStore(int index, const std::string& master_grpc) {
  const std::string name = absl::StrCat("store-", index);
  CISTERN_RETURN_IF_ERROR(WriteFile(absl::StrCat(dir_, "/", name, ".toml"),
                                    StoreToml(options_, dir_, segment_dir_, index, master_grpc)));
  std::vector<std::string> arguments;
  for (const std::string& set : options_.store_set)
    arguments.insert(arguments.end(), {"--set", set});
  CISTERN_ASSIGN_OR_RETURN(auto store, Launch("store", name, arguments));
  daemons_.push_back(std::move(store));
  return absl::OkStatus();
}

absl::StatusOr<ctl::Endpoints> LocalPool::AwaitEndpoints(const std::string& run_dir) {
  while (true) {
    absl::StatusOr<ctl::Endpoints> endpoints = ctl::ReadEndpointsFile(run_dir + "/endpoints.json");
    if (endpoints.ok() || !absl::IsNotFound(endpoints.status())) return endpoints;
    CISTERN_RETURN_IF_ERROR(Pause(run_dir + "/endpoints.json"));
  }
}

absl::Status LocalPool::WaitReady() {
  for (int i = 0; i < options_.stores; ++i) {
    CISTERN_RETURN_IF_ERROR(AwaitEndpoints(DaemonDir(dir_, i)).status());
  }
  CISTERN_ASSIGN_OR_RETURN(auto admin, ctl::AdminClient::Make(connection_, absl::Seconds(5)));
  while (true) {
    CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply stats, admin->Stats());
    const auto serving = std::count_if(stats.stores().begin(), stats.stores().end(),
                                       [](const auto& s) { return s.state() == "serving"; });
    if (serving >= options_.stores) return absl::OkStatus();
    CISTERN_RETURN_IF_ERROR(Pause("every store to join the master"));
  }
}

absl::Status LocalPool::Pause(const std::string& waiting_for) {
  CISTERN_RETURN_IF_ERROR(CheckAlive());
  if (options_.interrupted && options_.interrupted()) return absl::CancelledError("interrupted");
  if (clock_.Mono() >= ready_by_) {
    std::string message = absl::StrCat("waited in vain for ", waiting_for);
    for (const auto& daemon : daemons_) {
      absl::StrAppend(&message, "; the end of ", daemon->name(), "'s log:\n", daemon->LogTail());
    }
    return absl::DeadlineExceededError(message);
  }
  clock_.SleepFor(kPollInterval);
  return absl::OkStatus();
}

absl::Status LocalPool::CheckAlive() {
  for (auto& daemon : daemons_) {
    if (!daemon->Running()) {
      return absl::UnavailableError(absl::StrCat(daemon->name(), " ", daemon->Fate(),
                                                 "; the end of its log:\n", daemon->LogTail()));
    }
  }
  return absl::OkStatus();
}

absl::Status LocalPool::Stop() {
  std::string trouble;
  for (auto it = daemons_.rbegin(); it != daemons_.rend(); ++it) {
    ChildProcess& daemon = **it;
    const bool in_time = daemon.Stop(kStopGrace);
    if (in_time && daemon.exit_code() == 0) continue;
    absl::StrAppend(&trouble, daemon.name(), " ",
                    in_time ? daemon.Fate() : "had to be killed when it should stop",
                    "; the end of its log:\n", daemon.LogTail());
  }
  daemons_.clear();
  return trouble.empty() ? absl::OkStatus() : absl::InternalError(trouble);
}

}  // namespace cistern::pool
