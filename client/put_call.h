// One Put request to one store.
//
//   1. Put, with all its payload in the same frame when that is at most kInlinePayloadBytes
//      and the batch does not ask first.
//   2. Else PutReady says which chunks the store wants; their payload follows.
//   3. PutDone: a status per chunk.
#ifndef CISTERN_CLIENT_PUT_CALL_H_
#define CISTERN_CLIENT_PUT_CALL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "client/operation.h"
#include "client/put_payload.h"
#include "client/store_table.h"
#include "transport/channel.h"

namespace cistern {

// What one request puts, in order.
struct PutBatch {
  std::vector<ChunkName> names;
  std::vector<PutChunk> chunks;
  uint32_t part_bytes = 0;
  bool digest = true;
  bool ask_first = false;  // no payload in the request's own frame
  uint64_t expiry_unix_ms = 0;
  bool replace = false;
  uint64_t mutation = 0;               // as Place gave it
  std::vector<std::string_view> keys;  // empty: the namespace keeps none

  uint64_t StreamBytes() const;
};

struct PutAnswer {
  std::vector<uint8_t> statuses;  // wire::ChunkStatus per chunk; empty where the call failed
  std::string message;
};

// Owns itself from Start() on; holds the operation until `done` has run (as one of its steps).
class PutCall final : public transport::CallHandler {
 public:
  using Done = absl::AnyInvocable<void(const absl::Status&, PutAnswer&)>;
  static void Start(std::shared_ptr<Operation> operation, const StoreTable::Link& link,
                    PutBatch batch, Done done);

  // Meta bytes of the request per chunk, without its key.
  static constexpr size_t kMetaBytesPerChunk = 24;

 private:
  PutCall(std::shared_ptr<Operation> operation, const StoreTable::Link& link, PutBatch batch,
          Done done);
  void Send();
  absl::Status OnFrame(const Answer& answer, transport::PayloadSink** sink,
                       std::unique_ptr<transport::PayloadSource>* source) override;
  absl::Status OnReady(std::string_view meta, std::unique_ptr<transport::PayloadSource>* source);
  void OnDone(absl::Status status) override;

  const std::shared_ptr<Operation> operation_;
  const StoreTable::Link link_;
  PutBatch batch_;
  Done done_;
  bool inline_ = false;
  bool ready_ = false;
  PutAnswer answer_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_PUT_CALL_H_
