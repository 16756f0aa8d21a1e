// Asks the master for its statistics again and again, on a thread of its own: whoever shows them
// stays awake for keys.
#ifndef CISTERN_TOOLS_CTL_STATS_POLLER_H_
#define CISTERN_TOOLS_CTL_STATS_POLLER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "tools/ctl/admin_client.h"

namespace cistern::ctl {

// Thread-safe. Owns one thread, joined by the destructor: at once, whatever the master does.
class StatsPoller {
 public:
  using MakeAdmin = std::function<absl::StatusOr<std::unique_ptr<AdminClient>>()>;
  // `make_admin` is asked again after a failure: the master may be found elsewhere by then.
  // `on_answer` runs on the thread when Take() has something.
  StatsPoller(MakeAdmin make_admin, absl::Duration interval, std::function<void()> on_answer,
              Clock& clock);
  ~StatsPoller();

  // The last answer that was not taken yet.
  std::optional<absl::StatusOr<admin::StatsReply>> Take();
  // Asks now.
  void AskNow();

 private:
  void Run();
  absl::StatusOr<admin::StatsReply> Ask();

  const MakeAdmin make_admin_;
  const absl::Duration interval_;
  const std::function<void()> on_answer_;
  Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool now_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<AdminClient> admin_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<admin::StatsReply>> answer_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_STATS_POLLER_H_
