// From the configuration file to the options of the master's classes.
#ifndef CISTERN_MASTER_SETTINGS_H_
#define CISTERN_MASTER_SETTINGS_H_

#include <string>

#include "absl/status/status.h"
#include "master/master_core.h"
#include "proto/config.pb.h"

namespace cistern::master {

// What the loader's rules for single keys cannot say. InvalidArgument names the keys and the way
// out.
absl::Status CheckSettings(const config::MasterConfig& config);

// The core's options; identity, seed and chance are the caller's to fill.
MasterOptions CoreOptions(const config::MasterConfig& config);

// Where endpoints.json goes.
std::string RunDir(const config::MasterConfig& config);

}  // namespace cistern::master

#endif  // CISTERN_MASTER_SETTINGS_H_
