// What bounds a pool on this machine, measured without one.
#ifndef CISTERN_TOOLS_POOLBENCH_LIMITS_H_
#define CISTERN_TOOLS_POOLBENCH_LIMITS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "tools/poolbench/cases.h"

namespace cistern::poolbench {

// Bare sockets on loopback: `threads` writers send a working set in pieces of 256 KiB, as many
// readers put them into a second one, both as large as `bytes` and touched before; each thread
// takes its share of the `connections` in turn. Bytes a second.
absl::StatusOr<std::unique_ptr<Measurement>> MakeTcpPair(uint64_t bytes, uint64_t connections,
                                                         uint64_t threads, Clock& clock);

// What a lookup of `keys` keys sends and gets back.
struct EchoBytes {
  size_t request = 0;
  size_t reply = 0;
};
EchoBytes LookupBytes(uint64_t keys);

// A server that answers each request of that many bytes with that many, over a bare socket; one
// connection and one thread a caller. Keys a second, `keys` a call.
absl::StatusOr<std::unique_ptr<Measurement>> MakeTcpEcho(uint64_t keys, uint64_t threads,
                                                         Clock& clock);
// The same over gRPC.
absl::StatusOr<std::unique_ptr<Measurement>> MakeGrpcEcho(uint64_t keys, uint64_t threads,
                                                          Clock& clock);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_LIMITS_H_
