#include "base/ops/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

// systemd's end.
class Manager {
 public:
  explicit Manager(std::string name) : name_(std::move(name)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT_LT(name_.size(), sizeof(address.sun_path));
    memcpy(address.sun_path, name_.data(), std::min(name_.size(), sizeof(address.sun_path) - 1));
    if (name_[0] == '@') address.sun_path[0] = '\0';
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const timeval patience{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size() +
                                              (name_[0] == '@' ? 0 : 1));
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0) << strerror(errno);
  }
  ~Manager() {
    close(fd_);
    if (name_[0] != '@') unlink(name_.c_str());
  }
  std::string Receive() {
    char buffer[1024];
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    return n < 0 ? "nothing" : std::string(buffer, static_cast<size_t>(n));
  }

 private:
  const std::string name_;
  int fd_ = -1;
};

// Not in the test's own folder: a socket's path has 107 bytes at most.
std::string Name(const std::string& prefix) { return prefix + "notify" + std::to_string(getpid()); }

TEST(NotifierTest, TellsAManagerOnAPathAndInTheAbstractSpace) {
  for (const std::string& name : {Name("/tmp/cistern-"), Name("@cistern-")}) {
    Manager manager(name);
    const Notifier notifier({.notify_socket = name.c_str()});
    EXPECT_TRUE(notifier.enabled());
    EXPECT_EQ(notifier.watchdog_interval(), absl::InfiniteDuration());
    notifier.Ready("serving\nREADY=0");
    EXPECT_EQ(manager.Receive(), "READY=1\nSTATUS=serving READY=0\n");
    notifier.Status("2 stores");
    EXPECT_EQ(manager.Receive(), "STATUS=2 stores\n");
    notifier.Watchdog();
    EXPECT_EQ(manager.Receive(), "WATCHDOG=1\n");
    notifier.Stopping("stopping");
    EXPECT_EQ(manager.Receive(), "STOPPING=1\nSTATUS=stopping\n");
  }
}

TEST(NotifierTest, SaysNothingWhereNobodyListens) {
  const std::string absent = testing::TempDir() + "/nobody";
  for (const char* name :
       {static_cast<const char*>(nullptr), "", "@", "relative", absent.c_str()}) {
    const Notifier notifier({.notify_socket = name, .watchdog_usec = "1000000"});
    EXPECT_FALSE(notifier.enabled());
    EXPECT_EQ(notifier.watchdog_interval(), absl::InfiniteDuration());
    notifier.Ready("serving");
  }
  const std::string long_name = "/" + std::string(200, 'x');
  EXPECT_FALSE(Notifier({.notify_socket = long_name.c_str()}).enabled());
}

TEST(NotifierTest, FeedsTheWatchdogThatMeansThisProcess) {
  const std::string name = Name("@cistern-watchdog-");
  Manager manager(name);
  const std::string own = std::to_string(getpid());
  const auto interval = [&](const char* usec, const char* pid) {
    return Notifier({.notify_socket = name.c_str(), .watchdog_usec = usec, .watchdog_pid = pid})
        .watchdog_interval();
  };
  EXPECT_EQ(interval("30000000", own.c_str()), absl::Seconds(10));
  EXPECT_EQ(interval("30000000", nullptr), absl::Seconds(10));
  EXPECT_EQ(interval("30000000", "1"), absl::InfiniteDuration());
  EXPECT_EQ(interval("30000000", "x"), absl::InfiniteDuration());
  EXPECT_EQ(interval("0", own.c_str()), absl::InfiniteDuration());
  EXPECT_EQ(interval("-5", own.c_str()), absl::InfiniteDuration());
  EXPECT_EQ(interval("soon", own.c_str()), absl::InfiniteDuration());
}

}  // namespace
}  // namespace cistern
