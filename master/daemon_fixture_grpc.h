// What tests of the whole master share: a daemon on loopback, clients and stores that talk to it.
#ifndef CISTERN_MASTER_DAEMON_FIXTURE_GRPC_H_
#define CISTERN_MASTER_DAEMON_FIXTURE_GRPC_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/eventually.h"  // IWYU pragma: export
#include "base/ids.h"
#include "master/master_daemon.h"
#include "master/scripted_store_grpc.h"
#include "proto/config.pb.h"
#include "proto/master.pb.h"
#include "transport/channel.h"
#include "transport/io_context.h"

namespace cistern::master {

inline constexpr uint32_t kChunk = 64 << 10;

// Frames over a real TCP channel. Not thread-safe.
class FrameClient {
 public:
  FrameClient(uint16_t data_port, std::string token);

  // The answer's meta, or the error.
  absl::StatusOr<std::string> Call(transport::FrameType type, std::string meta,
                                   absl::Duration timeout = absl::Seconds(20));
  template <typename Reply, typename Request>
  absl::StatusOr<Reply> Ask(transport::FrameType type, Request request) {
    if (request.deadline_ms() == 0) request.set_deadline_ms(20'000);
    absl::StatusOr<std::string> meta = Call(type, request.SerializeAsString());
    if (!meta.ok()) return meta.status();
    Reply reply;
    if (!reply.ParseFromString(*meta)) return absl::InternalError("the answer cannot be parsed");
    return reply;
  }

  absl::StatusOr<wire::OpenNamespaceReply> Open(const std::string& name,
                                                const std::string& fingerprint = "fp");
  // On every connection; binds are numbered from 1.
  void Bind(const std::string& id);
  // Of the namespace bound as 1.
  absl::StatusOr<wire::LookupReply> Lookup(const std::vector<KeyId>& ids);
  absl::StatusOr<wire::PlaceReply> Place(const std::vector<KeyId>& ids, char operation);
  absl::StatusOr<wire::RemoveReply> Remove(const std::vector<KeyId>& ids, bool force,
                                           uint32_t deadline_ms = 20'000);
  // How many keys of the batch are present; -1 on an error.
  int Present(const std::vector<KeyId>& ids);

 private:
  std::unique_ptr<transport::IoContext> io_;
  std::unique_ptr<transport::Channel> channel_;
};

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest();
  ~DaemonTest() override;

  config::MasterConfig Config() const;
  absl::Status StartDaemon(const config::MasterConfig& config, const std::string& token = "");
  void MustStart() { ASSERT_TRUE(StartDaemon(Config()).ok()); }
  std::unique_ptr<FrameClient> Client(const std::string& token = "");
  // A client that has the namespace "ns" open and bound as 1.
  std::unique_ptr<FrameClient> BoundClient();
  ScriptedStore::Options StoreOptions(char which = 'a') const;
  // In session, with "ns" announced as its namespace 0.
  std::unique_ptr<ScriptedStore> ConnectedStore(char which = 'a',
                                                uint64_t capacity_bytes = uint64_t{1} << 30);

  static std::vector<KeyId> Ids(int first, int count);
  static wire::NamespaceInfo Namespace();

  std::string dir_;
  std::unique_ptr<MasterDaemon> daemon_;
  absl::Status fatal_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_DAEMON_FIXTURE_GRPC_H_
