// Reads the head of a get's answer and checks it against what was asked for: whatever a store says,
// no byte will land beyond the caller's memory, and no memory is taken that the caller's does not
// account for.
#ifndef CISTERN_CLIENT_GET_HEAD_H_
#define CISTERN_CLIENT_GET_HEAD_H_

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/get_batch.h"
#include "client/get_payload.h"

namespace cistern {

struct GetHeadResult {
  std::vector<GetOutcome> outcomes;  // one a target
  std::vector<GetChunk> chunks;      // those that the stream brings, in order
  std::vector<size_t> targets;       // of each chunk: its target
  uint64_t payload_bytes = 0;        // of the stream, as the head says and the chunks make
};

// Fills *out. A chunk with bytes to come has an outcome of kOk, or of kDataLoss where it is not the
// one whose front is in place. Internal: the head is none that the request can have.
absl::Status ReadGetHead(std::string_view meta, const GetBatch& batch, GetHeadResult* out);

}  // namespace cistern

#endif  // CISTERN_CLIENT_GET_HEAD_H_
