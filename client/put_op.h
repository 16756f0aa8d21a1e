// Namespace::BatchPut.
//
//   1. Check the items: their memory, their sizes, doubles (sent once, answered alike).
//   2. Place: the master says for each chunk that it is there, or being put, or where it goes.
//   3. Put requests to each store, as the budget of bytes in flight allows: the batch's end in one
//      that carries its payload, what is before it in one or more that ask first.
//   4. What failed for a reason that another try can cure (the store is gone) is placed again
//      under the same operation id after a short while, until the deadline.
//   A replace differs in this: what is there is sent as well, to the store that has it.
//   5. With wait_visible: ask until lookups see every chunk.
#ifndef CISTERN_CLIENT_PUT_OP_H_
#define CISTERN_CLIENT_PUT_OP_H_

#include <memory>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/mutex.h"
#include "client/buffer_registry.h"
#include "client/client_core.h"
#include "client/open_namespace.h"
#include "client/operation.h"
#include "client/put_call.h"
#include "proto/master.pb.h"

namespace cistern {

class PutOp final : public Operation {
 public:
  PutOp(std::shared_ptr<ClientCore> core, std::shared_ptr<const OpenNamespaceInfo> ns,
        absl::Span<const PutItem> items, const PutOptions& options, bool async);

  // Once, when done.
  BatchResult Take() { return std::move(result_); }

 private:
  void Begin() override;
  void CheckItems();
  // Empty: the item's key is what it must be. Else why not.
  std::string CheckKey(const PutItem& item) const;
  void FindDoubles();

  void Place();
  void PlaceSome(std::vector<uint32_t> items, uint16_t shard);
  void OnPlaced(const std::vector<uint32_t>& items, const absl::Status& status,
                const wire::PlaceReply& reply);

  // Cuts each store's items into requests and starts them.
  void Send();
  // One request. `ask_first`: its payload waits for the store's word, however little it is.
  void SendBatch(LocalStore store, std::vector<uint32_t> items, bool ask_first);
  void StartBatch(LocalStore store, std::vector<uint32_t> items, uint64_t bytes, bool ask_first);
  void OnSent(LocalStore store, const std::vector<uint32_t>& items, uint64_t bytes,
              const absl::Status& status, const PutAnswer& answer);
  void OnAllSent();

  void WaitVisible();
  void AskVisible();
  void End();

  // Any thread: a chunk's answer; a failure's words (the first are kept).
  void SetCode(uint32_t item, ChunkCode code) { result_.items[item].code = code; }
  void Note(std::string_view message);
  void FailItems(const std::vector<uint32_t>& items, const absl::Status& status);
  void Again(const std::vector<uint32_t>& items);

  const std::shared_ptr<ClientCore> core_;
  const std::shared_ptr<const OpenNamespaceInfo> ns_;
  const absl::Span<const PutItem> items_;
  const PutOptions options_;
  const OperationId id_;
  const bool digest_;
  uint32_t part_bytes_ = 0;
  uint64_t expiry_unix_ms_ = 0;

  BufferRegistry::Pins pins_;
  std::vector<MemoryRef> memory_;
  std::vector<PartLayout> layouts_;
  // Where an item's key stands a second time: the first item; empty when no key does.
  std::vector<uint32_t> first_of_;
  std::vector<LocalStore> targets_;  // per item
  std::vector<uint64_t> mutations_;  // per item, of mutable namespaces: with its target
  size_t longest_key_ = 0;           // of namespaces that keep keys

  StepCount step_;
  std::vector<uint32_t> todo_;  // of the round under way, in the caller's order
  int rounds_ = 0;

  Mutex mutex_;  // over what several calls of a step may touch at once
  std::vector<uint32_t> again_ ABSL_GUARDED_BY(mutex_);
  std::string message_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // of a Place that failed as a whole
  BatchResult result_;                            // items: each is touched by one call at a time
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_PUT_OP_H_
