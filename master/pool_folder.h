// Makes and opens the folder that holds a pool's durable state, and its token.
#ifndef CISTERN_MASTER_POOL_FOLDER_H_
#define CISTERN_MASTER_POOL_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "master/state_store_rocksdb.h"
#include "proto/config.pb.h"

namespace cistern::master {

// What `--init` did, for people.
struct PoolMade {
  PoolId pool_id;
  bool pool_created = false;   // else it was there
  bool token_created = false;  // else it was there, or none is configured
};

// `--init`: makes data_dir, a pool in it, and the token file where one is configured. What is there
// already stays as it is.
absl::StatusOr<PoolMade> InitPool(const config::MasterConfig& config, const Clock& clock);

// Opens the pool in data_dir. A folder that does not exist or is empty gets a new pool first (and a
// log line says so): that is what a first start looks like. A folder that holds other files but no
// pool is refused with FailedPrecondition: it is probably not the one that was meant, and --init
// makes a pool there if it was.
absl::StatusOr<std::unique_ptr<RocksStateStore>> OpenPool(const config::MasterConfig& config,
                                                          const Clock& clock);

// The token, "" where none is configured. NotFound points to --init.
absl::StatusOr<std::string> ReadToken(const config::MasterConfig& config);

}  // namespace cistern::master

#endif  // CISTERN_MASTER_POOL_FOLDER_H_
