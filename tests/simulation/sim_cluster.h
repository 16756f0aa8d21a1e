// A whole pool in one process and one thread: the master's functional core, model stores, and the
// links between them with delays and faults.
#ifndef CISTERN_TESTS_SIMULATION_SIM_CLUSTER_H_
#define CISTERN_TESTS_SIMULATION_SIM_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "master/core_testing.h"
#include "master/master_core.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/sim_store.h"
#include "tools/replay/random.h"

namespace cistern::simulation {

class SimCluster {
 public:
  struct Options {
    int stores = 2;
    uint64_t pool_bytes = 0;  // sum of the segments
    uint32_t chunk_bytes = 64 << 10;
    uint64_t seed = 1;
    absl::Duration link_min = absl::Microseconds(50);
    absl::Duration link_max = absl::Microseconds(300);
    absl::Duration flush = absl::Milliseconds(2);
    absl::Duration heartbeat = absl::Milliseconds(500);
    absl::Duration tick = absl::Milliseconds(10);
    size_t log_records = 1'000'000;
    size_t page_records = 1000;
    master::MasterOptions master;
  };
  explicit SimCluster(const Options& options);

  EventQueue& events() { return events_; }
  master::MasterCore& core() { return *core_; }
  SimStore& store(size_t i) { return *nodes_[i].store; }
  size_t stores() const { return nodes_.size(); }
  replay::Random& random() { return random_; }
  void Run(absl::Duration d) { events_.RunUntil(events_.now() + d); }

  // --- What a client does.
  wire::LookupReply Lookup(const std::vector<KeyId>& ids);
  wire::PlaceReply Place(const std::vector<KeyId>& ids);
  void Release(const std::string& lease_id);
  wire::RemoveReply Remove(const std::vector<KeyId>& ids, bool force, bool all);
  // The batch arrives at the store after `delay`; without room the store asks for it, then helps
  // itself.
  void Put(StoreIndex store, std::vector<KeyId> ids, absl::Duration delay);
  // The model store that the master calls `index`; null when it names none.
  SimStore* StoreOf(StoreIndex index);
  uint64_t puts_without_room() const { return puts_without_room_; }

  // --- Faults.
  void CutSession(size_t i);
  void RestartStore(size_t i, bool keep_chunks);
  void RestartMaster();
  // The next message of the store to the master is lost or comes twice.
  void LoseNext(size_t i) { nodes_[i].lose_next = true; }
  void DoubleNext(size_t i) { nodes_[i].double_next = true; }

  // What differs between the index and what the stores hold, as text; empty when nothing does.
  // Only meaningful at quiescence (every session open, everything sent has arrived).
  std::string Differences();
  bool AllConnected() const;
  uint64_t sessions_opened() const { return sessions_opened_; }

 private:
  struct Node {
    std::unique_ptr<SimStore> store;
    master::SessionId session;  // 0 = none
    uint64_t link = 0;          // counts sessions: messages of an older link are lost
    bool streaming = false;     // hello is answered
    uint64_t sent_seq = 0;
    uint64_t sent_command = 0;
    MonoTime last_up;  // a link keeps order: nothing arrives before this
    MonoTime last_down;
    bool lose_next = false;
    bool double_next = false;
  };

  void StartMaster();
  void OpenNamespace();
  void Connect(size_t i);
  void Reconnect(size_t i);
  void SendUp(size_t i, wire::StoreMessage message);
  void DeliverUp(size_t i, uint64_t link, const wire::StoreMessage& message);
  void DeliverDown(size_t i, uint64_t link, const wire::MasterMessage& message);
  void Drain();
  void FlushLoop(size_t i);
  void Flush(size_t i);
  void HeartbeatLoop(size_t i);
  void TickLoop();
  MonoTime Arrival(MonoTime* last);

  const Options options_;
  EventQueue events_;
  replay::Random random_;
  master::MemoryStateStore state_;
  std::unique_ptr<master::MasterCore> core_;
  std::vector<Node> nodes_;
  uint32_t ns_ref_ = 0;
  uint64_t next_operation_ = 1;
  uint64_t next_incarnation_ = 100;
  uint64_t next_snapshot_ = 1;
  uint64_t puts_without_room_ = 0;
  uint64_t sessions_opened_ = 0;
  wire::NamespaceInfo ns_;
};

}  // namespace cistern::simulation

#endif  // CISTERN_TESTS_SIMULATION_SIM_CLUSTER_H_
