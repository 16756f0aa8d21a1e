// A master for tests of the store: a real gRPC session service that proves itself, answers the
// hello as told, acknowledges deltas and keeps what it hears.
#ifndef CISTERN_STORE_TESTING_SCRIPTED_MASTER_H_
#define CISTERN_STORE_TESTING_SCRIPTED_MASTER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "proto/store.pb.h"

namespace cistern::store {

// What the records say a chunk is now.
struct ToldChunk {
  uint64_t version = 0;
  uint8_t tiers = 0;
  uint32_t length = 0;
  uint8_t cause = 0;
  NamespaceId ns;
};

// Thread-safe.
class ScriptedMaster {
 public:
  ScriptedMaster(const PoolId& pool_id, std::string token);
  ~ScriptedMaster();

  std::string address() const;  // 127.0.0.1:PORT
  const PoolId& pool_id() const { return pool_id_; }

  // The next sessions resume at the store's log_first instead of asking for a snapshot.
  void AnswerWithResume(bool resume);
  void SetEpoch(uint64_t epoch);
  // Sends to the session that is open; false if none is.
  bool Send(const wire::MasterMessage& message);
  // Ends the open session.
  void CutSession();

  // Waits until `done` holds (called under the lock); false after `timeout`.
  bool WaitFor(const std::function<bool()>& done, absl::Duration timeout = absl::Seconds(20));

  // Under WaitFor's lock, or when nothing moves:
  const std::map<std::pair<KeyId, uint16_t>, ToldChunk>& chunks() const { return chunks_; }
  const std::vector<KeyId>& arrivals() const { return arrivals_; }
  int sessions() const { return sessions_; }
  int snapshots_ended() const { return snapshots_ended_; }
  uint64_t snapshot_count() const { return snapshot_count_; }
  uint64_t heartbeats() const { return heartbeats_; }
  uint64_t need_bytes() const { return need_bytes_; }
  const wire::SessionHello& hello() const { return hello_; }
  const wire::Heartbeat& heartbeat() const { return heartbeat_; }
  const std::string& problem() const { return problem_; }

 private:
  class Service;
  friend class Service;
  void Apply(const wire::Delta& delta, bool snapshot);

  const PoolId pool_id_;
  const std::string token_;
  Mutex mutex_;
  CondVar changed_;
  bool resume_ = false;
  uint64_t epoch_ = 1;
  std::map<std::pair<KeyId, uint16_t>, ToldChunk> chunks_;
  std::vector<KeyId> arrivals_;  // ids with tiers, in the order of their records
  std::vector<NamespaceId> namespaces_;
  std::vector<wire::MasterMessage> outbox_;
  bool open_ = false;
  bool cut_ = false;
  int sessions_ = 0;
  int snapshots_ended_ = 0;
  uint64_t snapshot_count_ = 0;
  uint64_t heartbeats_ = 0;
  uint64_t need_bytes_ = 0;
  uint64_t expected_seq_ = 0;
  wire::SessionHello hello_;
  wire::Heartbeat heartbeat_;
  std::string problem_;
  std::unique_ptr<Service> service_;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_TESTING_SCRIPTED_MASTER_H_
