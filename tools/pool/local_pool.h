// A whole pool on this host, in temporary folders: one master and some stores on loopback, with
// ports of the system's choice and a fresh pool token.
#ifndef CISTERN_TOOLS_POOL_LOCAL_POOL_H_
#define CISTERN_TOOLS_POOL_LOCAL_POOL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "tools/ctl/connection.h"
#include "tools/pool/child_process.h"

namespace cistern::pool {

struct LocalPoolOptions {
  int stores = 2;                             // 0: a master alone
  uint64_t pool_bytes = uint64_t{256} << 20;  // over all stores, header tables included
  uint64_t expected_chunk_bytes = 64 << 10;
  std::string bin_dir = {};                 // holds both daemons; empty = beside this program
  std::string work_parent = "/tmp";         // the folder for data, logs and sockets is made here
  std::string segment_parent = "/dev/shm";  // the folder for the segments is made here
  absl::Duration ready_timeout = absl::Seconds(60);
  bool outlive = false;  // the pool stays when this process ends, however it ends
  std::vector<std::string> master_set = {};        // --set key=value for the master
  std::vector<std::string> store_set = {};         // and for each store
  std::vector<std::string> master_arguments = {};  // further flags of the master
  // Asked while Start waits; true makes it give up (Cancelled).
  std::function<bool()> interrupted = nullptr;
};

// The segment of each store: a 4 KiB multiple, so that the sum is at most pool_bytes.
uint64_t SegmentBytes(const LocalPoolOptions& options);

// The configuration files, as text.
std::string MasterToml(const std::string& dir);
std::string StoreToml(const LocalPoolOptions& options, const std::string& dir,
                      const std::string& segment_dir, int index, const std::string& master_grpc);

// Destroying it stops the daemons and removes the folders, unless it was kept. Not thread-safe.
class LocalPool {
 public:
  // Returns when every store is in session with the master. Errors show the end of the log of the
  // daemon that failed; nothing is left behind.
  static absl::StatusOr<std::unique_ptr<LocalPool>> Start(const LocalPoolOptions& options,
                                                          Clock& clock);
  ~LocalPool();

  const ctl::Connection& connection() const { return connection_; }
  const std::string& dir() const { return dir_; }
  const std::string& segment_dir() const { return segment_dir_; }
  std::string master_endpoints_file() const;
  std::vector<pid_t> pids() const;

  // Unavailable with the daemon's name and the end of its log when one has ended.
  absl::Status CheckAlive();
  // Ends the master at once, as a crash would, and starts it anew in its folder. Returns when it
  // serves; its ports, and so connection(), are others.
  absl::Status RestartMaster();
  // Stops stores, then master; says which did not end in good order. Folders stay until the end.
  absl::Status Stop();
  // Everything stays, running, when this object goes. Needs options.outlive.
  void Keep() { kept_ = true; }

 private:
  LocalPool(const LocalPoolOptions& options, Clock& clock);
  absl::Status MakeFolders();
  absl::Status StartMaster();
  absl::StatusOr<std::unique_ptr<ChildProcess>> RunMaster();
  absl::Status AwaitMaster();
  absl::Status StartStore(int index, const std::string& master_grpc);
  absl::Status WaitReady();
  // Runs a daemon with its configuration; its log is DIR/<name>.log.
  absl::StatusOr<std::unique_ptr<ChildProcess>> Launch(const std::string& program,
                                                       const std::string& name,
                                                       const std::vector<std::string>& arguments);
  absl::StatusOr<ctl::Endpoints> AwaitEndpoints(const std::string& run_dir);
  // Between two looks at something that is waited for: a daemon ended, interrupted, or too late.
  absl::Status Pause(const std::string& waiting_for);

  const LocalPoolOptions options_;
  Clock& clock_;
  MonoTime ready_by_;
  std::string dir_;
  std::string segment_dir_;
  ctl::Connection connection_;
  std::vector<std::unique_ptr<ChildProcess>> daemons_;  // the master first
  bool kept_ = false;
};

// Where a program of this build or installation lies: beside this one, or in its folder of the
// build tree (`package`). NotFound says where was looked.
absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& package,
                                        const std::string& bin_dir);

}  // namespace cistern::pool

#endif  // CISTERN_TOOLS_POOL_LOCAL_POOL_H_
