#include "tests/integration/daemons.h"

#include <unistd.h>

#include <cstdlib>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace cistern {

uint16_t PortOf(const std::string& address) {
  const auto parts = ctl::SplitHostPort(address);
  return parts.ok() ? static_cast<uint16_t>(std::atoi(parts->port.c_str())) : 0;
}

std::unique_ptr<pool::ChildProcess> Daemons::Start(const std::string& name,
                                                   const std::vector<std::string>& set,
                                                   ctl::Endpoints* endpoints) {
  const std::string run_dir = dir_ / name;
  // A daemon that was killed has left it.
  unlink((run_dir + "/endpoints.json").c_str());
  std::vector<std::string> all = {"data_dir=" + run_dir,
                                  "data_port=" + std::to_string(PortOf(endpoints->data)),
                                  "http_port=" + std::to_string(PortOf(endpoints->http))};
  all.insert(all.end(), set.begin(), set.end());
  std::vector<std::string> argv = {name + "/cistern-" + name};
  for (const std::string& key_value : all) {
    argv.push_back("--set");
    argv.push_back(key_value);
  }
  auto child = pool::ChildProcess::Start(
      {.name = name, .argv = std::move(argv), .log_path = log(name)}, Clock::Real());
  EXPECT_TRUE(child.ok()) << child.status();
  for (int i = 0; i < 3000 && (*child)->Running(); ++i) {
    const auto read = ctl::ReadEndpointsFile(run_dir + "/endpoints.json");
    if (read.ok()) {
      *endpoints = *read;
      return *std::move(child);
    }
    Clock::Real().SleepFor(absl::Milliseconds(10));
  }
  ADD_FAILURE() << name << " " << (*child)->Fate() << ":\n" << (*child)->LogTail();
  return *std::move(child);
}

std::unique_ptr<pool::ChildProcess> Daemons::StartMaster(const std::vector<std::string>& set) {
  std::vector<std::string> all = {"grpc_port=" + std::to_string(PortOf(master_.grpc))};
  all.insert(all.end(), set.begin(), set.end());
  return Start("master", all, &master_);
}

std::unique_ptr<pool::ChildProcess> Daemons::StartStore(const std::vector<std::string>& set) {
  std::vector<std::string> all = {"master_address=" + master_.grpc,
                                  "segment_dir=" + (dir_ / "segments"), "segment[0].size=16MiB",
                                  "name=store-0"};
  all.insert(all.end(), set.begin(), set.end());
  return Start("store", all, &store_);
}

}  // namespace cistern
