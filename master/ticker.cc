#include "master/ticker.h"

#include <utility>

namespace cistern::master {

Ticker::Ticker(Options options, CoreDriver& driver, absl::AnyInvocable<void()> sweep)
    : options_(options),
      driver_(driver),
      sweep_(std::move(sweep)),
      last_tick_ns_(absl::ToInt64Nanoseconds(driver.clock().Mono().since_origin)),
      thread_([this] { Run(); }) {}

Ticker::~Ticker() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  thread_.join();
}

absl::Duration Ticker::since_tick() const {
  return driver_.clock().Mono().since_origin -
         absl::Nanoseconds(last_tick_ns_.load(std::memory_order_relaxed));
}

void Ticker::Run() {
  MonoTime next_sweep = driver_.clock().Mono();
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!stopping_) stop_.WaitFor(mutex_, options_.tick);
      if (stopping_) return;
    }
    Tick();
    last_tick_ns_.store(absl::ToInt64Nanoseconds(driver_.clock().Mono().since_origin),
                        std::memory_order_relaxed);
    if (driver_.clock().Mono() < next_sweep) continue;
    next_sweep = driver_.clock().Mono() + options_.sweep;
    sweep_();
  }
}

void Ticker::Tick() {
  const absl::Time wall = driver_.clock().Wall();
  const MonoTime until = driver_.clock().Mono() + options_.background;
  driver_.With([wall](MasterCore& core, MonoTime now) { core.Tick(now, wall); });
  driver_.StepRemovals();
  driver_.Dispatch();
  bool more = true;
  while (more && driver_.clock().Mono() < until) {
    more = driver_.With([](MasterCore& core, MonoTime now) { return core.BackgroundStep(now); });
  }
}

}  // namespace cistern::master
