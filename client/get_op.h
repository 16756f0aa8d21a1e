// Namespace::BatchGet.
//
//   1. Check the items: their memory (targets must not overlap), their selections.
//   2. Items whose store is not known are looked up at the master (no lease).
//   3. One or more Get requests per store, as the budget of bytes in flight allows.
//   4. What failed goes on: to the other replica, or once to the master when only the cache had
//      said where it is. Then it is a miss, or what else it was.
//
// Bytes that did not fit their digests are reported to the store that sent them.
#ifndef CISTERN_CLIENT_GET_OP_H_
#define CISTERN_CLIENT_GET_OP_H_

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/buffer_registry.h"
#include "client/client_core.h"
#include "client/get_call.h"
#include "client/open_namespace.h"
#include "client/operation.h"
#include "proto/master.pb.h"

namespace cistern {

class GetOp final : public Operation {
 public:
  GetOp(std::shared_ptr<ClientCore> core, std::shared_ptr<const OpenNamespaceInfo> ns,
        absl::Span<const GetItem> items, const GetOptions& options, bool async);

  // Once, when done.
  BatchResult Take() { return std::move(result_); }

 private:
  // What is known of one item's place.
  struct Route {
    Placement placement;
    uint8_t replica = 0;     // of placement: the one to ask
    bool looked_up = false;  // by this call: the master has nothing newer to say
    bool moved = false;      // looked up, not found there, to be looked up once more
    bool mismatch = false;   // some replica sent bytes that do not fit
    bool settled = false;    // answered for good
  };

  void Begin() override;
  bool CheckItem(size_t i);
  void Fail(uint32_t item, ChunkCode code, std::string_view why);

  // Steps: Round looks up what has no route, then asks the stores.
  void Round();
  void LookUp(const std::vector<uint32_t>& items);
  void LookUpSome(std::vector<uint32_t> items, uint16_t shard);
  void OnLookedUp(const std::vector<uint32_t>& items, const absl::Status& status,
                  const wire::LookupReply& reply);
  void Ask();
  void AskStore(LocalStore store, const GetSelection& selection, std::vector<uint32_t> items);
  void AskBatch(LocalStore store, const GetSelection& selection, std::vector<uint32_t> items);
  void StartBatch(LocalStore store, const GetSelection& selection, std::vector<uint32_t> items,
                  uint64_t bytes);
  void OnAnswered(LocalStore store, const StoreTable::Link& link,
                  const std::vector<uint32_t>& items, const absl::Status& status,
                  const std::vector<GetOutcome>& outcomes);
  void OnOutcome(uint32_t item, const GetOutcome& outcome, std::string_view why);
  // Another place to ask for the item, or none: then its answer stands.
  void TryElsewhere(uint32_t item);
  void OnAllAnswered();
  void ReportBad(const StoreTable::Link& link, const std::vector<uint32_t>& items,
                 const std::vector<GetOutcome>& outcomes);
  void End();

  GetSelection SelectionOf(uint32_t item) const;
  ChunkName NameOf(uint32_t item) const { return {items_[item].id, Shard(items_[item].shard)}; }
  void Note(std::string_view message);

  const std::shared_ptr<ClientCore> core_;
  const std::shared_ptr<const OpenNamespaceInfo> ns_;
  const absl::Span<const GetItem> items_;
  const GetOptions options_;

  BufferRegistry::Pins pins_;
  std::vector<MemoryRef> memory_;
  std::vector<Route> routes_;

  StepCount step_;
  std::vector<uint32_t> todo_;

  Mutex mutex_;  // over what several calls of a step may touch at once
  std::vector<uint32_t> again_ ABSL_GUARDED_BY(mutex_);
  std::string message_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // of a Lookup that failed as a whole
  BatchResult result_;                            // items: each is touched by one call at a time
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_GET_OP_H_
