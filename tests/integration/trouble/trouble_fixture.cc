#include "tests/integration/trouble/trouble_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

namespace cistern {
namespace {

// The state letters of a process's threads, as /proc has them; empty when it is gone.
std::string ThreadStates(pid_t pid) {
  std::string states;
  std::error_code error;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (std::filesystem::directory_iterator it(tasks, error), end; !error && it != end;
       it.increment(error)) {
    std::ifstream file(it->path() / "stat");
    std::string stat;
    if (!std::getline(file, stat)) continue;  // it ended meanwhile
    // "pid (name) state ...": the name may hold anything.
    const size_t name_end = stat.rfind(')');
    if (name_end != std::string::npos && name_end + 2 < stat.size()) states += stat[name_end + 2];
  }
  return states;
}

std::string StatusField(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(name + ":", 0) == 0) return line.substr(name.size() + 1);
  }
  return "";
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

void TroubleFixture::StartTroublePool(uint64_t pool_bytes, int stores,
                                      std::vector<std::string> store_set) {
  pool::LocalPoolOptions options;
  options.stores = stores;
  options.pool_bytes = pool_bytes;
  options.expected_chunk_bytes = 16 << 10;
  options.master_set = {"in_progress=1s", "lease=1s"};
  options.store_set = std::move(store_set);
  ASSERT_NO_FATAL_FAILURE(StartPool(std::move(options)));
  first_ = pool_->pids();
  replaced_.resize(first_.size());
  for (size_t d = 0; d < first_.size(); ++d) {
    const std::string folder = d == 0 ? "/master" : "/store-" + std::to_string(d - 1);
    ASSERT_OK_AND_ASSIGN(const ctl::Endpoints at,
                         ctl::ReadEndpointsFile(pool_->dir() + folder + "/endpoints.json"));
    ASSERT_OK_AND_ASSIGN(const ctl::HostPort data, ctl::SplitHostPort(at.data));
    ASSERT_OK_AND_ASSIGN(const ctl::HostPort http, ctl::SplitHostPort(at.http));
    Ports ports{.data = static_cast<uint16_t>(std::stoi(data.port)),
                .http = static_cast<uint16_t>(std::stoi(http.port))};
    if (d != 0) ports.socket = pool_->dir() + folder + "/store.sock";
    if (d == 0) {
      ASSERT_OK_AND_ASSIGN(const ctl::HostPort grpc, ctl::SplitHostPort(at.grpc));
      ports.grpc = static_cast<uint16_t>(std::stoi(grpc.port));
    }
    ports_.push_back(ports);
  }
}

void TroubleFixture::TearDown() {
  PoolFixture::TearDown();
  replaced_.clear();
  for (const pid_t pid : first_) {
    if (pid > 0 && !HasEnded(pid)) kill(pid, SIGCONT);
  }
}

pid_t TroubleFixture::pid(int daemon) const {
  const auto d = static_cast<size_t>(daemon);
  return replaced_[d] != nullptr ? replaced_[d]->pid() : first_[d];
}

bool TroubleFixture::HasStopped(pid_t pid) {
  const std::string states = ThreadStates(pid);
  return !states.empty() && states.find_first_not_of('T') == std::string::npos;
}

bool TroubleFixture::HasEnded(pid_t pid) {
  return pid <= 0 || ThreadStates(pid).find_first_not_of("ZX") == std::string::npos;
}

void TroubleFixture::Kill(int daemon) {
  const pid_t victim = pid(daemon);
  if (victim > 0) kill(victim, SIGKILL);
  ASSERT_TRUE(Eventually([&] { return HasEnded(victim); }));
}

void TroubleFixture::Halt(int daemon) {
  kill(pid(daemon), SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return HasStopped(pid(daemon)) || HasEnded(pid(daemon)); }));
}

void TroubleFixture::Replace(int daemon, const std::vector<std::string>& faults) {
  ASSERT_NO_FATAL_FAILURE(Kill(daemon));
  const auto d = static_cast<size_t>(daemon);
  const bool master = daemon == kMaster;
  const std::string name = master ? "master" : "store-" + std::to_string(daemon - 1);
  std::vector<std::string> argv = {master ? "master/cistern-master" : "store/cistern-store",
                                   "--config", pool_->dir() + "/" + name + ".toml"};
  std::vector<std::string> set = {"data_port=" + std::to_string(ports_[d].data)};
  if (master) set.push_back("grpc_port=" + std::to_string(ports_[d].grpc));
  const pool::LocalPoolOptions& options = pool_options_;
  const std::vector<std::string>& more = master ? options.master_set : options.store_set;
  set.insert(set.end(), more.begin(), more.end());
  for (const std::string& s : set) argv.insert(argv.end(), {"--set", s});
  if (!faults.empty()) argv.push_back("--enable-faults");
  for (const std::string& fault : faults) argv.insert(argv.end(), {"--fault", fault});
  replaced_[d].reset();
  ASSERT_OK_AND_ASSIGN(replaced_[d], pool::ChildProcess::Start(
                                         {.name = name,
                                          .argv = std::move(argv),
                                          .log_path = pool_->dir() + "/" + name + "-again.log"},
                                         Clock::Real()));
}

bool TroubleFixture::AllServe() const {
  auto admin = ctl::AdminClient::Make(pool_->connection(), absl::Seconds(2));
  if (!admin.ok()) return false;
  const auto stats = (*admin)->Stats();
  if (!stats.ok()) return false;
  const auto serving = std::count_if(stats->stores().begin(), stats->stores().end(),
                                     [](const auto& s) { return s.state() == "serving"; });
  return serving == static_cast<int>(first_.size()) - 1;
}

void TroubleFixture::AwaitService() {
  ASSERT_TRUE(Eventually([&] { return AllServe(); })) << [&] {
    std::string logs;
    for (size_t d = 0; d < first_.size(); ++d) logs += LogTail(static_cast<int>(d));
    return logs;
  }();
}

std::string TroubleFixture::LogTail(int daemon) const {
  const auto d = static_cast<size_t>(daemon);
  if (replaced_[d] != nullptr) return replaced_[d]->LogTail();
  const std::string name = d == 0 ? "master" : "store-" + std::to_string(d - 1);
  return pool::TailOfFile(pool_->dir() + "/" + name + ".log", 20);
}

void TroubleFixture::ExpectNothingIsLeft() {
  RemoveOptions force;
  force.force = true;
  force.deadline = absl::Seconds(5);
  std::string held;
  const bool empty = Eventually([&] {
    held = "no answer";
    if (!ns_->RemoveAll(force).ok()) return false;
    auto admin = ctl::AdminClient::Make(pool_->connection(), absl::Seconds(2));
    if (!admin.ok()) return false;
    const auto stats = (*admin)->Stats();
    const auto segments = (*admin)->Segments();
    if (!stats.ok() || !segments.ok()) return false;
    held = stats->ShortDebugString() + " " + segments->ShortDebugString();
    uint64_t inflight = 0;
    for (const auto& store : stats->stores()) inflight += store.inflight_bytes();
    return stats->pool().chunk_count() == 0 && stats->pool().leased_bytes() == 0 &&
           stats->pool().active_leases() == 0 && stats->pool().in_progress_puts() == 0 &&
           inflight == 0 && segments->segments_size() == static_cast<int>(first_.size()) - 1 &&
           std::all_of(segments->segments().begin(), segments->segments().end(),
                       [](const admin::SegmentStats& s) {
                         return s.free_bytes() == s.allocatable_bytes() && s.headers_used() == 0;
                       });
  });
  ASSERT_TRUE(empty) << held;
}

int64_t TroubleFixture::ResidentBytes(pid_t pid) {
  const std::string field = StatusField(pid, "VmRSS");
  return field.empty() ? -1 : std::stoll(field) * 1024;
}

int TroubleFixture::ThreadCount(pid_t pid) {
  const std::string field = StatusField(pid, "Threads");
  return field.empty() ? -1 : std::stoi(field);
}

struct Lateness::State {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> worst_ns{0};
  std::thread thread;
};

Lateness::Lateness() : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get()] {
    constexpr absl::Duration kNap = absl::Milliseconds(2);
    while (!state->stop) {
      const MonoTime start = Clock::Real().Mono();
      Clock::Real().SleepFor(kNap);
      const int64_t late = absl::ToInt64Nanoseconds(Clock::Real().Mono() - start - kNap);
      if (late > state->worst_ns) state->worst_ns = late;
    }
  });
}

Lateness::~Lateness() {
  state_->stop = true;
  state_->thread.join();
}

absl::Duration Lateness::Take() { return absl::Nanoseconds(state_->worst_ns.exchange(0)); }

BlackHole::BlackHole(uint16_t port) {
  listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listen_fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = Loopback(port);
  EXPECT_EQ(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listen_fd_, 0), 0);
  socklen_t bytes = sizeof(address);
  getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &bytes);
  port_ = ntohs(address.sin_port);
  // Connections nobody accepts fill its queue; from then on the kernel drops what comes.
  for (bool full = false; !full && filling_.size() < 16;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    filling_.push_back(fd);
    (void)connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));  // see below
    pollfd wait{fd, POLLOUT, 0};
    full = poll(&wait, 1, 100) == 0;
  }
}

BlackHole::~BlackHole() {
  for (const int fd : filling_) close(fd);
  close(listen_fd_);
}

}  // namespace cistern
