// Single daemons for tests that start, signal and restart them; LocalPool gives whole pools.
#ifndef CISTERN_TESTS_INTEGRATION_DAEMONS_H_
#define CISTERN_TESTS_INTEGRATION_DAEMONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/test_util.h"
#include "tools/ctl/connection.h"
#include "tools/pool/child_process.h"

namespace cistern {

// Folders, and daemons in them. A daemon that is started again finds what the last one left, and
// the ports it had. Without a token.
class Daemons {
 public:
  // `set`: --set key=value.
  std::unique_ptr<pool::ChildProcess> StartMaster(const std::vector<std::string>& set = {});
  std::unique_ptr<pool::ChildProcess> StartStore(const std::vector<std::string>& set = {});
  // What the daemon has written; waits until it has, at most half a minute.
  const ctl::Endpoints& master() const { return master_; }
  const ctl::Endpoints& store() const { return store_; }
  std::string run_dir(const std::string& name) const { return dir_ / name; }
  std::string log(const std::string& name) const { return dir_ / (name + ".log"); }

 private:
  std::unique_ptr<pool::ChildProcess> Start(const std::string& name,
                                            const std::vector<std::string>& set,
                                            ctl::Endpoints* endpoints);
  TempDir dir_;
  ctl::Endpoints master_;
  ctl::Endpoints store_;
};

uint16_t PortOf(const std::string& address);

}  // namespace cistern

#endif  // CISTERN_TESTS_INTEGRATION_DAEMONS_H_
