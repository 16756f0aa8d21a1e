#include "transport/fake/engine.h"

#include <algorithm>
#include <utility>

namespace cistern::transport {
namespace {

// The engine whose event this thread is running.
thread_local const FakeEngine* t_engine = nullptr;

}  // namespace

FakeEngine::FakeEngine(const FakeNetwork::Options& options)
    : options_(options), random_(options.seed) {}

FakeEngine::~FakeEngine() { Stop(); }

void FakeEngine::Start() {
  if (!options_.stepped) thread_ = std::thread([this] { Loop(); });
}

void FakeEngine::Stop() {
  std::priority_queue<Event, std::vector<Event>, std::greater<>> dropped;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    dropped.swap(events_);
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

bool FakeEngine::OnEventThread() const { return t_engine == this; }

bool FakeEngine::At(MonoTime when, absl::AnyInvocable<void()>& fn) {
  MutexLock lock(mutex_);
  if (stopped_) return false;
  events_.push({when, next_order_++, std::make_shared<absl::AnyInvocable<void()>>(std::move(fn))});
  changed_.NotifyAll();
  return true;
}

void FakeEngine::Run(absl::AnyInvocable<void()> fn) {
  if (OnEventThread() || !At(Now(), fn)) fn();
}

void FakeEngine::Execute(absl::AnyInvocable<void()> fn) {
  if (OnEventThread() || options_.stepped) {
    const FakeEngine* const outer = std::exchange(t_engine, this);
    fn();
    t_engine = outer;
    return;
  }
  struct Done {
    Mutex mutex;
    CondVar changed;
    bool done = false;
  };
  auto done = std::make_shared<Done>();
  absl::AnyInvocable<void()> event = [&fn, done] {
    fn();
    fn = nullptr;
    MutexLock lock(done->mutex);
    done->done = true;
    done->changed.NotifyAll();
  };
  if (!At(Now(), event)) {
    fn();
    return;
  }
  MutexLock lock(done->mutex);
  while (!done->done) done->changed.Wait(done->mutex);
}

bool FakeEngine::Step() {
  std::shared_ptr<absl::AnyInvocable<void()>> fn;
  {
    MutexLock lock(mutex_);
    if (events_.empty() || events_.top().when > Now()) return false;
    fn = events_.top().fn;
    events_.pop();
  }
  const FakeEngine* const outer = std::exchange(t_engine, this);
  (*fn)();
  t_engine = outer;
  return true;
}

MonoTime FakeEngine::NextEvent() const {
  MutexLock lock(mutex_);
  return events_.empty() ? MonoTime::Infinite() : events_.top().when;
}

void FakeEngine::Loop() {
  for (;;) {
    while (Step()) {
    }
    MutexLock lock(mutex_);
    if (stopped_) return;
    if (events_.empty()) {
      changed_.Wait(mutex_);
    } else if (const absl::Duration left = events_.top().when - Now();
               left > absl::ZeroDuration()) {
      changed_.WaitFor(mutex_, left);
    }
  }
}

absl::Duration FakeEngine::Random(absl::Duration low, absl::Duration high) {
  if (high <= low) return low;
  const int64_t span = absl::ToInt64Nanoseconds(high - low);
  return low + absl::Nanoseconds(static_cast<int64_t>(random_() % static_cast<uint64_t>(span + 1)));
}

absl::Duration FakeEngine::Delay() { return Random(options_.min_delay, options_.max_delay); }

absl::Duration FakeEngine::CopyDelay() {
  return Random(absl::ZeroDuration(), options_.max_copy_delay);
}

bool FakeEngine::CutsNow() {
  return options_.cut_one_in > 0 && random_() % options_.cut_one_in == 0;
}

}  // namespace cistern::transport
