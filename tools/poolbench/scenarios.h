// What poolbench plays once: each starts a pool of its own and ends in figures.
#ifndef CISTERN_TOOLS_POOLBENCH_SCENARIOS_H_
#define CISTERN_TOOLS_POOLBENCH_SCENARIOS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "client/client.h"
#include "tools/pool/local_pool.h"
#include "tools/poolbench/options.h"
#include "tools/poolbench/report.h"

namespace cistern::poolbench {

// Borrowed for the call.
struct ScenarioEnv {
  const Options& options;
  Clock& clock;
  std::function<bool()> interrupted;  // asked now and then: give up with Cancelled
};

inline constexpr int kConnectionsPerStore = 2;
// A client of `pool` (null: of options.master) with the options' wire.
absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const pool::LocalPool* pool,
                                                  const Options& options);

// Puts options.overload_times the pool's bytes at full speed while another thread looks every chunk
// up as soon as the master knows of it, which leases it.
absl::StatusOr<std::vector<Figure>> RunOverload(const Case& one, const ScenarioEnv& env);

// Puts far more than fits, and watches which share of the store's allocatable bytes holds payload:
// with chunks of one size, then of sizes up to four times that.
absl::StatusOr<std::vector<Figure>> RunFill(const Case& one, const ScenarioEnv& env);

// A trace, its requests dealt to options.threads sessions of one client. Every byte that comes back
// is compared with what it must be. DataLoss if one was wrong.
absl::StatusOr<std::vector<Figure>> RunReplay(const Case& one, const ScenarioEnv& env);

// A real master whose stores are played (store_player.h).
absl::StatusOr<std::vector<Figure>> RunIndex(const ScenarioEnv& env);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_SCENARIOS_H_
