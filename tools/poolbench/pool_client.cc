#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/poolbench/scenarios.h"

namespace cistern::poolbench {
namespace {

Wire WireOf(const std::string& name) {
  return name == "tcp"    ? Wire::kTcp
         : name == "shm"  ? Wire::kShm
         : name == "rdma" ? Wire::kRdma
                          : Wire::kAuto;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const pool::LocalPool* pool,
                                                  const Options& options) {
  ClientOptions client;
  client.wire = WireOf(options.wire);
  client.connections_per_store = kConnectionsPerStore;
  client.deadline = absl::Seconds(10);
  client.master_address = pool != nullptr ? pool->connection().data : options.master;
  client.pool_token_file = pool != nullptr ? pool->connection().token_file : options.token_file;
  return Client::Connect(client);
}

}  // namespace cistern::poolbench
