// The stream against real listeners on loopback.
#include "store/session_stream.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fault.h"
#include "base/test_util.h"
#include "store/testing/scripted_master.h"

namespace cistern::store {
namespace {

// Takes connections and never says a word.
class SilentListener {
 public:
  SilentListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentListener() { close(fd_); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  const int fd_;
  int port_ = 0;
};

TEST(SessionStreamTest, ClosesThoughThePeerNeverSpeaks) {
  const SilentListener listener;
  auto stream = OpenSessionStream(listener.address(), [] {});
  wire::StoreMessage message;
  message.mutable_need_bytes();
  EXPECT_TRUE(stream->TryWrite(&message));
  EXPECT_THAT(stream->Close(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(stream->Close(), StatusIs(absl::StatusCode::kCancelled));
}

TEST(SessionStreamTest, CloseHasADeadlineOfItsOwn) {
  ScriptedMaster master(PoolId::FromBytes("pool-of-the-test"), "");
  ASSERT_OK(ArmFault("store.session_stream.on_done:delay=1s"));
  auto wakes = std::make_shared<std::atomic<int>>(0);
  auto stream = OpenSessionStream(master.address(), [wakes] { ++*wakes; });
  EXPECT_THAT(stream->Close(absl::Milliseconds(20)), StatusIs(absl::StatusCode::kDeadlineExceeded));
  // The owner is gone while gRPC is still at it: nothing is called any more, nothing is touched.
  stream.reset();
  const int heard = *wakes;
  EXPECT_EQ(wakes.use_count(), 1);  // the callback was let go of
  const MonoTime until = Clock::Real().Mono() + absl::Seconds(20);
  while (FaultActions("store.session_stream.on_done") == 0 && Clock::Real().Mono() < until) {
    Clock::Real().SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(FaultActions("store.session_stream.on_done"), 1u);
  EXPECT_EQ(*wakes, heard);
  Clock::Real().SleepFor(absl::Milliseconds(1200));  // gRPC's thread is out of the fault by then
  // The next one frees what was left behind.
  EXPECT_THAT(OpenSessionStream(master.address(), [] {})->Close(),
              StatusIs(absl::StatusCode::kCancelled));
  DisarmFaults();
}

}  // namespace
}  // namespace cistern::store
