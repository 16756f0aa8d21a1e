// A pool whose daemons are stopped, killed, replaced by ones that fail at a named point, and cut
// off.
#ifndef CISTERN_TESTS_INTEGRATION_TROUBLE_TROUBLE_FIXTURE_H_
#define CISTERN_TESTS_INTEGRATION_TROUBLE_TROUBLE_FIXTURE_H_

#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/client/pool_fixture.h"
#include "tools/pool/child_process.h"

namespace cistern {

// Where a daemon listens. grpc is 0 for stores, socket (shared memory) "" for the master; http is
// the first process's, a replaced one takes another.
struct Ports {
  uint16_t data = 0;
  uint16_t grpc = 0;
  uint16_t http = 0;
  std::string socket = {};
};

class TroubleFixture : public PoolFixture {
 protected:
  static constexpr int kMaster = 0;
  static constexpr int Store(int i) { return 1 + i; }

  // A small pool of two stores; what nobody ends by itself ends soon. `set` is for every store.
  void StartTroublePool(uint64_t pool_bytes = uint64_t{96} << 20, int stores = 2,
                        std::vector<std::string> store_set = {});
  void TearDown() override;

  pid_t pid(int daemon) const;
  const Ports& ports(int daemon) const { return ports_[static_cast<size_t>(daemon)]; }

  // SIGKILL, and the process is gone when it returns.
  void Kill(int daemon);
  // SIGSTOP, and every thread of it has stopped when it returns (or it is gone, by a fault point).
  void Halt(int daemon);
  void Continue(int daemon) const { kill(pid(daemon), SIGCONT); }
  // Whether each of its threads has stopped; whether it is gone (or a zombie).
  static bool HasStopped(pid_t pid);
  static bool HasEnded(pid_t pid);

  // Kills the daemon and starts it anew on its ports, in its folders, with fault points armed
  // ("name:action[:count[:skip]]").
  void Replace(int daemon, const std::vector<std::string>& faults = {});
  // Every store is in session and serves.
  bool AllServe() const;
  void AwaitService();
  // The end of a replaced daemon's log, or of the first one's.
  std::string LogTail(int daemon) const;

  // Forces everything out and waits until nothing is held anywhere: no chunk, no lease, no put in
  // progress, no extent, no header.
  void ExpectNothingIsLeft();

  // Of /proc: -1 when there is none.
  static int64_t ResidentBytes(pid_t pid);
  static int ThreadCount(pid_t pid);

 private:
  std::vector<pid_t> first_;  // LocalPool's own
  std::vector<Ports> ports_;
  std::vector<std::unique_ptr<pool::ChildProcess>> replaced_;
};

// Measures how late this host is now: how long a thread that asks to sleep 2 ms sleeps more than
// that, at worst. Bounds on elapsed time are only worth testing with this much added.
class Lateness {
 public:
  Lateness();
  ~Lateness();
  // Since it was made, or asked last.
  absl::Duration Take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// An address of the loopback where nobody answers: connections to it neither come about nor fail.
class BlackHole {
 public:
  // Takes `port` (0: any free one).
  explicit BlackHole(uint16_t port = 0);
  ~BlackHole();
  BlackHole(const BlackHole&) = delete;
  BlackHole& operator=(const BlackHole&) = delete;
  uint16_t port() const { return port_; }

 private:
  int listen_fd_ = -1;
  std::vector<int> filling_;
  uint16_t port_ = 0;
};

}  // namespace cistern

#endif  // CISTERN_TESTS_INTEGRATION_TROUBLE_TROUBLE_FIXTURE_H_
