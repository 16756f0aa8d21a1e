// A store for tests: a real session stream, a table instead of memory.
#ifndef CISTERN_MASTER_SCRIPTED_STORE_GRPC_H_
#define CISTERN_MASTER_SCRIPTED_STORE_GRPC_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "proto/store.grpc.pb.h"

namespace cistern::master {

// Promise: shakes hands, sends a snapshot or resumes as it is told, reports what the test commits,
// and frees what it is told to (unless told not to). Thread-safe. Owns one thread, which reads.
class ScriptedStore {
 public:
  struct Options {
    uint16_t grpc_port = 0;
    std::string token;
    PoolId pool_id;
    StoreId store_id;
    uint64_t incarnation = 1;
    std::string name = "scripted";
    uint64_t capacity_bytes = uint64_t{1} << 30;
    uint64_t highest_epoch = 0;
    bool in_session_elsewhere = false;
    // Evict commands are carried out.
    bool obeys = true;
    // What it holds is announced under these.
    std::vector<wire::NamespaceInfo> namespaces;
  };
  explicit ScriptedStore(Options options);
  ~ScriptedStore();  // cuts the stream

  // The handshake, the hello and the snapshot. The status that the master gave, or of the stream.
  absl::Status Connect();
  // Ends the stream; the table stays, and Connect opens another, of the same incarnation.
  void Disconnect();
  const wire::SessionHelloAck& ack() const { return ack_; }

  // Holds `ids` from now on, and says so: one version each, the last id first.
  void Commit(uint32_t namespace_index, const std::vector<KeyId>& ids, uint32_t length);
  void SendRaw(const wire::StoreMessage& message);

  size_t chunk_count() const;
  uint64_t evict_commands() const;
  uint64_t acked() const;
  uint64_t epoch_heard() const;
  // Commands about segments that it was sent; the test answers them by SendRaw.
  std::vector<wire::SegmentCommand> segment_commands() const;
  // The stream has been ended by the master.
  bool ended() const;
  absl::Status error() const;

 private:
  struct Held {
    uint64_t version;
    uint32_t length;
    uint32_t ns;
  };
  using Stream = grpc::ClientReaderWriter<wire::StoreMessage, wire::MasterMessage>;

  absl::Status Handshake();
  absl::Status ReadAnswer(wire::MasterMessage* message);
  wire::SessionHello Hello() const;
  void SendSnapshot();
  void SendHeartbeatLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadLoop();
  void OnEvict(const wire::Evict& evict);

  const Options options_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::StoreSession::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Stream> stream_;
  wire::SessionHelloAck ack_;
  std::thread reader_;

  mutable Mutex mutex_;  // also orders the stream's writes
  std::map<KeyId, Held> held_ ABSL_GUARDED_BY(mutex_);
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_version_ ABSL_GUARDED_BY(mutex_);  // never runs backwards over incarnations
  uint64_t next_seq_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t acked_command_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t evict_commands_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t acked_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<wire::SegmentCommand> segment_commands_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_SCRIPTED_STORE_GRPC_H_
