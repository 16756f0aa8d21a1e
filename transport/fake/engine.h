// The event queue under a FakeNetwork.
#ifndef CISTERN_TRANSPORT_FAKE_ENGINE_H_
#define CISTERN_TRANSPORT_FAKE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "transport/fake/fake.h"

namespace cistern::transport {

struct FakeServerCore;

// Runs events in order of time, those of one time in the order they were queued. Public methods
// are thread-safe except where they say "events only".
class FakeEngine {
 public:
  explicit FakeEngine(const FakeNetwork::Options& options);
  ~FakeEngine();
  void Start();
  void Stop();

  const FakeNetwork::Options& options() const { return options_; }
  MonoTime Now() const { return options_.clock->Mono(); }

  // False when stopped; `fn` is then still the caller's.
  bool At(MonoTime when, absl::AnyInvocable<void()>& fn);
  void At(MonoTime when, absl::AnyInvocable<void()>&& fn) { At(when, fn); }
  // Runs `fn` here if this is the events' thread, else soon; here, too, when stopped.
  void Run(absl::AnyInvocable<void()> fn);
  // The same, and returns when it has run.
  void Execute(absl::AnyInvocable<void()> fn);
  bool Step();
  MonoTime NextEvent() const;

  // Events only.
  absl::Duration Delay();
  absl::Duration CopyDelay();
  bool CutsNow();
  std::map<uint16_t, std::shared_ptr<FakeServerCore>>& servers() { return servers_; }

 private:
  struct Event {
    MonoTime when;
    uint64_t order;
    std::shared_ptr<absl::AnyInvocable<void()>> fn;
    bool operator>(const Event& other) const {
      return when > other.when || (when == other.when && order > other.order);
    }
  };
  bool OnEventThread() const;
  absl::Duration Random(absl::Duration low, absl::Duration high);
  void Loop();

  const FakeNetwork::Options options_;
  std::mt19937_64 random_;
  std::map<uint16_t, std::shared_ptr<FakeServerCore>> servers_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_order_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_FAKE_ENGINE_H_
