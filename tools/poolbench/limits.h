// What bounds a pool on this machine, measured without one.
#ifndef CISTERN_TOOLS_POOLBENCH_LIMITS_H_
#define CISTERN_TOOLS_POOLBENCH_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "tools/poolbench/measurement.h"

namespace cistern::poolbench {

// Bare sockets on loopback: `threads` writers send a working set in pieces of 256 KiB, as many
// readers put them into a second one, both as large as `bytes` and touched before; each thread
// takes its share of the `connections` in turn. Bytes a second.
absl::StatusOr<std::unique_ptr<Measurement>> MakeTcpPair(uint64_t bytes, uint64_t connections,
                                                         uint64_t threads, Clock& clock);

// Memory to memory, by `threads` threads with their shares, between two sets as large as `bytes`
// that were touched before: what a get from shared memory is bounded by. `digest` makes an XXH3-64
// of each stretch of 64 KiB as soon as it is copied, from the cache. Bytes a second.
absl::StatusOr<std::unique_ptr<Measurement>> MakeCopy(uint64_t bytes, bool digest, uint64_t threads,
                                                      Clock& clock);

// What a call sends and gets back, frame headers included.
struct EchoBytes {
  size_t request = 0;
  size_t reply = 0;
};
EchoBytes LookupBytes(uint64_t keys);
EchoBytes GetBytes(uint64_t chunks, uint64_t chunk_bytes);

// A server that answers each request of that many bytes with that many, over a bare socket; one
// connection and one thread a caller. `units_per_call` times calls a second.
absl::StatusOr<std::unique_ptr<Measurement>> MakeTcpEcho(const EchoBytes& bytes,
                                                         double units_per_call, uint64_t threads,
                                                         Clock& clock);
// The same over gRPC.
absl::StatusOr<std::unique_ptr<Measurement>> MakeGrpcEcho(const EchoBytes& bytes,
                                                          double units_per_call, uint64_t threads,
                                                          Clock& clock);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_LIMITS_H_
