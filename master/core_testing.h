// What tests of the master's core need: a durable state in memory and a pool with hand-driven
// stores. For tests only.
#ifndef CISTERN_MASTER_CORE_TESTING_H_
#define CISTERN_MASTER_CORE_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "master/master_core.h"
#include "master/state_store.h"
#include "proto/master.pb.h"
#include "proto/store.pb.h"

namespace cistern::master {

// Durable state that outlives a master in the test.
class MemoryStateStore final : public StateStore {
 public:
  absl::StatusOr<DurableState> Load() override { return state; }
  absl::Status SaveNamespace(const wire::NamespaceInfo& info) override;
  absl::Status RemoveNamespace(const NamespaceId& id) override;
  absl::Status SaveEpoch(Epoch epoch) override;

  DurableState state;
};

// Key id number n: its first 8 bytes are n, the rest 0xAB.
KeyId TestId(uint64_t n);
std::string PackIds(const std::vector<KeyId>& ids);

// One record as a store would send it.
struct TestRecord {
  uint64_t id = 0;
  uint64_t version = 0;
  TierMask tiers = kDram;
  uint32_t length = 65536;
  wire::Cause cause = wire::CAUSE_PUT;
};

// Puts of chunks first_id, first_id + 1, ..., one version each from first_version on.
std::vector<TestRecord> Puts(uint64_t first_id, uint64_t count, uint64_t first_version);
// The chunk is gone from its store.
TestRecord Gone(uint64_t id, uint64_t version, wire::Cause cause = wire::CAUSE_EVICT_WATERMARK);

// A MasterCore with one open namespace, driven by hand at a time that the test moves.
class TestPool {
 public:
  static constexpr uint64_t kMiB = 1 << 20;

  explicit TestPool(MasterOptions options = MasterOptions());

  MasterCore& core() { return *core_; }
  PoolState& pool() { return core_->pool(); }
  MemoryStateStore& state() { return state_; }
  uint32_t ns_ref() const { return ns_ref_; }
  const wire::NamespaceInfo& ns() const { return ns_; }
  // A second master on the same durable state.
  void RestartMaster();

  // --- Stores. `n` names the store.
  wire::SessionHello Hello(int n, uint64_t capacity_bytes, uint64_t incarnation) const;
  // Hello, and an empty snapshot when one is asked for. Dies when refused.
  SessionId Connect(int n, uint64_t capacity_bytes, uint64_t incarnation = 1);
  absl::Status Send(SessionId session, const wire::StoreMessage& message);
  // Sends the records as one delta from seq on.
  absl::Status SendRecords(SessionId session, uint64_t seq, const std::vector<TestRecord>& records);
  absl::Status SendHeartbeat(SessionId session, uint64_t capacity_bytes, uint64_t used_bytes,
                             uint64_t record_seq, uint64_t acked_command);
  static void FillRecords(const std::vector<TestRecord>& records, wire::Delta* out);
  std::vector<wire::MasterMessage> Output(SessionId session);
  // Ids of all Evict commands that are queued for the session, in order.
  std::vector<KeyId> Evicted(SessionId session);

  // --- Clients. Each dies when the call fails as a whole.
  wire::LookupReply Lookup(const std::vector<uint64_t>& ids, uint32_t lease_ms = 0);
  wire::PlaceReply Place(const std::vector<uint64_t>& ids, uint32_t length = 65536,
                         uint64_t operation = 0);
  std::vector<bool> Exists(const std::vector<uint64_t>& ids);
  bool Release(const std::string& lease_id);
  static StoreIndex StoreAt(const std::string& column, size_t i);

  MonoTime now{absl::Seconds(1000)};

 private:
  void Start();

  MasterOptions options_;
  MemoryStateStore state_;
  std::unique_ptr<MasterCore> core_;
  uint64_t random_ = 1;
  uint64_t next_operation_ = 1000;
  uint32_t ns_ref_ = 0;
  wire::NamespaceInfo ns_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_CORE_TESTING_H_
