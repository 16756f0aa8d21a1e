// Namespace::BatchGet.
//
//   1. Check the items: their memory (targets must not overlap), their selections.
//   2. Items whose store is not known are looked up at the master (no lease).
//   3. One or more Get requests per store, as the budget of bytes in flight allows.
//   4. What failed goes on: to the other replica, or once to the master when only the cache had
//      said where it is. Then it is a miss, or what else it was.
//
// Items go through steps 2 and 3 in waves. By chunk one wave follows the other. By part a store has
// one request for all that is asked of it (they would not keep the order between them), the whole
// batch takes its bytes from the budget at once, and what a store's head says is missing goes on in
// a wave of its own while the others' bytes stream. A chunk whose front is in place goes on behind
// it (GetFront): what was told to be in place is not touched again.
//
// Bytes that did not fit their digests are reported to the store that sent them.
#ifndef CISTERN_CLIENT_GET_OP_H_
#define CISTERN_CLIENT_GET_OP_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/buffer_registry.h"
#include "client/client_core.h"
#include "client/get_call.h"
#include "client/open_namespace.h"
#include "client/operation.h"
#include "client/part_progress.h"
#include "proto/master.pb.h"

namespace cistern {

class GetOp final : public Operation {
 public:
  GetOp(std::shared_ptr<ClientCore> core, std::shared_ptr<const OpenNamespaceInfo> ns,
        absl::Span<const GetItem> items, const GetOptions& options, bool async);

  // Once, when done.
  BatchResult Take() { return std::move(result_); }

  // Async only; any thread.
  PartProgress& progress() { return *progress_; }
  // See PendingGet.
  PartWait WaitPart(uint32_t part, absl::Duration timeout);

 private:
  class Observer;

  // What is known of one item's place.
  struct Route {
    Placement placement;
    uint8_t replica = 0;     // of placement: the one to ask
    bool looked_up = false;  // by this call: the master has nothing newer to say
    bool moved = false;      // looked up, not found there, to be looked up once more
    bool mismatch = false;   // some replica sent bytes that do not fit
    bool settled = false;    // answered for good
    bool check = true;       // its bytes are held to their digests
    GetFront front;          // in place already
  };
  // Items that are looked up and asked for together. Each item is in one wave at a time, which is
  // who may touch its route and its result.
  struct Wave {
    std::vector<uint32_t> items;
    StepCount step;
    Mutex mutex;
    std::vector<uint32_t> again ABSL_GUARDED_BY(mutex);  // what another wave goes on with
  };
  using WavePtr = std::shared_ptr<Wave>;

  void Begin() override;
  bool CheckItem(size_t i);
  void BeginByPart();
  // The item's answer stands.
  void Settle(uint32_t item);
  void Fail(uint32_t item, ChunkCode code, std::string_view why);

  // Steps: a wave looks up what has no route, then asks the stores. live_ counts it in already.
  void StartWave(std::vector<uint32_t> items);
  void LookUp(const WavePtr& wave, const std::vector<uint32_t>& items);
  void LookUpSome(const WavePtr& wave, std::vector<uint32_t> items, uint16_t shard);
  void OnLookedUp(const std::vector<uint32_t>& items, const absl::Status& status,
                  const wire::LookupReply& reply);
  void Ask(const WavePtr& wave);
  void AskStore(const WavePtr& wave, LocalStore store, const GetSelection& selection,
                const std::vector<uint32_t>& items);
  void AskBatch(const WavePtr& wave, LocalStore store, const GetSelection& selection,
                std::vector<uint32_t> items);
  // `bytes`: of the budget, to be given back.
  void StartBatch(const WavePtr& wave, LocalStore store, const GetSelection& selection,
                  std::vector<uint32_t> items, uint64_t bytes);
  GetTarget TargetOf(uint32_t item) const;
  void OnAnswered(const WavePtr& wave, LocalStore store, const StoreTable::Link& link,
                  const std::vector<uint32_t>& items, const absl::Status& status,
                  const std::vector<GetOutcome>& outcomes);
  // True: there is another place to ask, and the item's route leads there now. False: its answer
  // stands.
  bool OnOutcome(uint32_t item, const GetOutcome& outcome, std::string_view why);
  bool TryElsewhere(uint32_t item);
  bool CanTryElsewhere(uint32_t item) const;
  // By part, before the call's end.
  void OnMissing(const std::vector<uint32_t>& items, absl::Span<const size_t> which,
                 const std::vector<GetOutcome>& outcomes);
  bool OnBad(uint32_t item, const GetOutcome& outcome);
  void OnAllAnswered(const WavePtr& wave);
  void ReportBad(const StoreTable::Link& link, const std::vector<uint32_t>& items,
                 const std::vector<GetOutcome>& outcomes);
  void End();

  GetSelection SelectionOf(uint32_t item) const;
  // Of the item's memory: bytes in front that are in place.
  uint64_t FrontBytes(uint32_t item) const;
  ChunkName NameOf(uint32_t item) const { return {items_[item].id, Shard(items_[item].shard)}; }
  bool by_part() const { return options_.order == GetOrder::kByPart; }
  void Note(std::string_view message);

  const std::shared_ptr<ClientCore> core_;
  const std::shared_ptr<const OpenNamespaceInfo> ns_;
  const absl::Span<const GetItem> items_;
  const GetOptions options_;

  BufferRegistry::Pins pins_;
  std::vector<MemoryRef> memory_;
  std::vector<Route> routes_;
  std::optional<PartProgress> progress_;

  StepCount live_;             // waves
  uint64_t budget_bytes_ = 0;  // by part: of the whole batch

  Mutex mutex_;  // over what several calls may touch at once
  std::string message_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // of a Lookup that failed as a whole
  BatchResult result_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_GET_OP_H_
