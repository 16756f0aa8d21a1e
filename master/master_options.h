// What the functional core is told at its start.
#ifndef CISTERN_MASTER_MASTER_OPTIONS_H_
#define CISTERN_MASTER_MASTER_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "base/ids.h"

namespace cistern::master {

struct MasterOptions {
  PoolId pool_id;
  uint64_t pool_birth_unix_ms = 0;
  double high_watermark = 0.95;
  double low_watermark = 0.92;
  absl::Duration lease = absl::Seconds(10);
  absl::Duration max_lease = absl::Seconds(60);
  double lease_share = 0.5;
  absl::Duration in_progress = absl::Seconds(10);
  absl::Duration delta_flush = absl::Milliseconds(2);
  absl::Duration heartbeat = absl::Milliseconds(500);
  absl::Duration suspect_after = absl::Seconds(3);
  absl::Duration dead_after = absl::Seconds(10);
  absl::Duration forget_after = absl::Minutes(10);
  uint64_t max_chunks = 200'000'000;
  uint32_t max_in_progress = 1'000'000;
  uint32_t max_leases = 1'000'000;
  uint32_t max_namespaces = 100'000;
  uint64_t hash_seed = 0;  // random per process
  // Fills n bytes with unguessable ones (lease ids).
  std::function<void(void*, size_t)> random_bytes;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_MASTER_OPTIONS_H_
