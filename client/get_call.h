// One Get request to one store.
//
//   1. Get.
//   2. GetHead: per chunk whether it comes, how long it is, its root digest.
//   3. The payload, straight into the caller's memory, verified as it lands.
//   4. GetDone, unless the head was final: a chunk may have turned to an error while it streamed.
#ifndef CISTERN_CLIENT_GET_CALL_H_
#define CISTERN_CLIENT_GET_CALL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/types/span.h"
#include "client/get_batch.h"
#include "client/get_head.h"
#include "client/get_payload.h"
#include "client/operation.h"
#include "client/store_table.h"
#include "proto/data.pb.h"
#include "transport/channel.h"

namespace cistern {

// Is told of a get by part before its end, on the thread that drives the call.
class GetObserver {
 public:
  virtual ~GetObserver() = default;
  // The head is here: these targets bring no bytes. They are the observer's from now on, which may
  // start other calls for them; their outcomes come back as `told`.
  virtual void OnMissing(absl::Span<const size_t> targets,
                         const std::vector<GetOutcome>& outcomes) = 0;
  // Of the parts that the target asks for, those before number `parts` are in place (verified,
  // unless they never will be); kAllParts: all.
  virtual void OnParts(size_t target, uint32_t parts) = 0;
  // The target's bytes do not fit their digests; those of its later parts still land in its memory.
  // True: the observer takes it over, as above; but nothing else may use that memory before the
  // end.
  virtual bool OnBad(size_t target, const GetOutcome& outcome) = 0;
};

// Owns itself from Start() on; holds the operation until `done` has run (as one of its steps).
class GetCall final : public transport::CallHandler, private GetPayload::Listener {
 public:
  // Outcomes have one entry a target also when the call failed: what came before stands.
  using Done = absl::AnyInvocable<void(const absl::Status&, const std::vector<GetOutcome>&)>;
  // `observer` may be null; is not asked for anything by chunk.
  static void Start(std::shared_ptr<Operation> operation, const StoreTable::Link& link,
                    GetBatch batch, std::unique_ptr<GetObserver> observer, Done done);

  // Meta bytes of the request, and of the head, per chunk: the larger.
  static constexpr size_t kMetaBytesPerChunk = 34;

 private:
  GetCall(std::shared_ptr<Operation> operation, const StoreTable::Link& link, GetBatch batch,
          std::unique_ptr<GetObserver> observer, Done done);
  void Send();
  absl::Status OnFrame(const Answer& answer, transport::PayloadSink** sink,
                       std::unique_ptr<transport::PayloadSource>* source) override;
  absl::Status OnHead(std::string_view meta);
  void TellHead();
  absl::Status OnStatuses(std::string_view meta);
  void OnParts(size_t chunk, uint32_t parts) override;
  void OnBad(size_t chunk) override;
  void OnDone(absl::Status status) override;
  void Settle(const absl::Status& status);

  const std::shared_ptr<Operation> operation_;
  const StoreTable::Link link_;
  GetBatch batch_;
  const std::unique_ptr<GetObserver> observer_;
  Done done_;
  bool headed_ = false;
  GetPayload payload_;
  std::vector<size_t> streamed_;  // targets in payload_, in order
  std::vector<GetOutcome> outcomes_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_GET_CALL_H_
