// Statuses of calls as the calling side makes them.
#ifndef CISTERN_TRANSPORT_STREAM_CALL_STATUS_H_
#define CISTERN_TRANSPORT_STREAM_CALL_STATUS_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "proto/types.pb.h"
#include "transport/channel.h"

namespace cistern::transport {

// No byte of the call had left.
inline absl::Status MarkNeverSent(absl::Status status) {
  if (!status.ok()) status.SetPayload(kNeverSentUrl, absl::Cord());
  return status;
}

// What an Error frame says.
inline absl::Status StatusOf(std::string_view meta) {
  wire::ErrorReply error;
  if (!error.ParseFromArray(meta.data(), static_cast<int>(meta.size())) || error.code() == 0) {
    return absl::InternalError("malformed error reply");
  }
  return absl::Status(static_cast<absl::StatusCode>(error.code()), error.message());
}

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STREAM_CALL_STATUS_H_
