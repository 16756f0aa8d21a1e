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
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "client/get_payload.h"
#include "client/operation.h"
#include "client/store_table.h"
#include "proto/data.pb.h"
#include "transport/channel.h"

namespace cistern {

// What part of each of its chunks a request is after.
struct GetSelection {
  enum class Kind : uint8_t { kWhole, kParts, kRange };
  Kind kind = Kind::kWhole;
  uint32_t first_part = 0;  // kParts
  uint32_t part_count = 0;
  bool any_length = false;  // targets may be longer than what comes
  friend bool operator==(const GetSelection&, const GetSelection&) = default;
};

struct GetTarget {
  ChunkName name;
  MemoryRef memory;
  uint64_t range_offset = 0;  // kRange
  uint64_t range_bytes = 0;
};

struct GetBatch {
  GetSelection selection;
  std::vector<GetTarget> targets;
};

struct GetOutcome {
  ChunkCode code = ChunkCode::kUnavailable;
  bool verified = false;
  bool mismatch = false;  // its bytes came and did not fit their digests
  uint64_t length = 0;    // of the chunk
  uint64_t version = 0;
};

// Owns itself from Start() on; holds the operation until `done` has run (as one of its steps).
class GetCall final : public transport::CallHandler {
 public:
  // Outcomes have one entry a target also when the call failed: what came before stands.
  using Done = absl::AnyInvocable<void(const absl::Status&, const std::vector<GetOutcome>&)>;
  static void Start(std::shared_ptr<Operation> operation, const StoreTable::Link& link,
                    GetBatch batch, Done done);

  // Meta bytes of the request, and of the head, per chunk: the larger.
  static constexpr size_t kMetaBytesPerChunk = 34;

 private:
  struct HeadColumns;

  GetCall(std::shared_ptr<Operation> operation, const StoreTable::Link& link, GetBatch batch,
          Done done);
  void Send();
  absl::Status OnFrame(const Answer& answer, transport::PayloadSink** sink,
                       std::unique_ptr<transport::PayloadSource>* source) override;
  absl::Status OnHead(std::string_view meta);
  // Describes target i's share of the stream; its outcome's code is an error where none comes.
  absl::Status Describe(size_t i, const HeadColumns& head, std::vector<GetChunk>* chunks);
  absl::Status OnStatuses(std::string_view meta);
  void OnDone(absl::Status status) override;
  void Settle(const absl::Status& status);

  const std::shared_ptr<Operation> operation_;
  const StoreTable::Link link_;
  GetBatch batch_;
  Done done_;
  bool headed_ = false;
  GetPayload payload_;
  std::vector<size_t> streamed_;  // targets in payload_, in order
  std::vector<GetOutcome> outcomes_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_GET_CALL_H_
