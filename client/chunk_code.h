// Per-chunk codes: from the wire's status column, from a failed call.
#ifndef CISTERN_CLIENT_CHUNK_CODE_H_
#define CISTERN_CLIENT_CHUNK_CODE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "client/client.h"
#include "proto/types.pb.h"

namespace cistern {

// ChunkCode is wire::ChunkStatus under a name of the public header, and one more.
static_assert(static_cast<int>(ChunkCode::kOk) == wire::CHUNK_OK);
static_assert(static_cast<int>(ChunkCode::kPresent) == wire::CHUNK_PRESENT);
static_assert(static_cast<int>(ChunkCode::kInProgress) == wire::CHUNK_IN_PROGRESS);
static_assert(static_cast<int>(ChunkCode::kNotFound) == wire::CHUNK_NOT_FOUND);
static_assert(static_cast<int>(ChunkCode::kResourceExhausted) == wire::CHUNK_RESOURCE_EXHAUSTED);
static_assert(static_cast<int>(ChunkCode::kInvalidArgument) == wire::CHUNK_INVALID_ARGUMENT);
static_assert(static_cast<int>(ChunkCode::kDataLoss) == wire::CHUNK_DATA_LOSS);
static_assert(static_cast<int>(ChunkCode::kUnavailable) == wire::CHUNK_UNAVAILABLE);
static_assert(static_cast<int>(ChunkCode::kCancelled) == wire::CHUNK_CANCELLED);
static_assert(static_cast<int>(ChunkCode::kDeadlineExceeded) == wire::CHUNK_DEADLINE_EXCEEDED);
static_assert(static_cast<int>(ChunkCode::kFailedPrecondition) == wire::CHUNK_FAILED_PRECONDITION);
static_assert(static_cast<int>(ChunkCode::kAborted) == wire::CHUNK_ABORTED);
static_assert(static_cast<int>(ChunkCode::kInternal) == wire::CHUNK_INTERNAL);

// A byte of a status column; one of a later version reads as kInternal.
inline ChunkCode FromWire(uint8_t status) {
  return status <= static_cast<uint8_t>(ChunkCode::kInternal) ? static_cast<ChunkCode>(status)
                                                              : ChunkCode::kInternal;
}

// What a failed call means for each of its chunks.
inline ChunkCode FromStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ChunkCode::kOk;
    case absl::StatusCode::kCancelled:
      return ChunkCode::kCancelled;
    case absl::StatusCode::kInvalidArgument:
      return ChunkCode::kInvalidArgument;
    case absl::StatusCode::kDeadlineExceeded:
      return ChunkCode::kDeadlineExceeded;
    case absl::StatusCode::kNotFound:
      return ChunkCode::kNotFound;
    case absl::StatusCode::kResourceExhausted:
      return ChunkCode::kResourceExhausted;
    case absl::StatusCode::kFailedPrecondition:
      return ChunkCode::kFailedPrecondition;
    case absl::StatusCode::kAborted:
      return ChunkCode::kAborted;
    case absl::StatusCode::kUnimplemented:
      return ChunkCode::kUnimplemented;
    case absl::StatusCode::kUnavailable:
      return ChunkCode::kUnavailable;
    case absl::StatusCode::kDataLoss:
      return ChunkCode::kDataLoss;
    default:
      return ChunkCode::kInternal;
  }
}

}  // namespace cistern

#endif  // CISTERN_CLIENT_CHUNK_CODE_H_
