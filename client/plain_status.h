// What leaves the library of a status that came from the transport.
#ifndef CISTERN_CLIENT_PLAIN_STATUS_H_
#define CISTERN_CLIENT_PLAIN_STATUS_H_

#include "absl/status/status.h"

namespace cistern {

// Code and message alone: payloads are notes among ourselves, which ToString() would show to
// people.
inline absl::Status PlainStatus(const absl::Status& status) {
  return absl::Status(status.code(), status.message());
}

}  // namespace cistern

#endif  // CISTERN_CLIENT_PLAIN_STATUS_H_
