// Options of the C interface as those of the C++ one.
#ifndef CISTERN_CLIENT_C_OPTIONS_H_
#define CISTERN_CLIENT_C_OPTIONS_H_

#include "client/c/call.h"
#include "client/cistern.h"
#include "client/client.h"

namespace cistern::c {

// Sets what every call has. Background is 0 or 1: all other is 1.
template <typename Options>
void SetCallOptions(const Options& in, CallOptions* out) {
  if (in.deadline_us != 0) out->deadline = FromMicros(in.deadline_us);
  out->priority = in.background != 0 ? Priority::kBackground : Priority::kNormal;
}

inline CallOptions ToCallOptions(const cistern_call_options& in) {
  CallOptions out;
  SetCallOptions(in, &out);
  return out;
}

inline uint16_t ShardCount(uint16_t given) { return given == 0 ? 1 : given; }

}  // namespace cistern::c

#endif  // CISTERN_CLIENT_C_OPTIONS_H_
