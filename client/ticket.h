// The ticket: a LookupResult as bytes, for another process (see LookupResult::Serialize).
//
//   off            size  field
//     0              4   magic "CTK1"
//     4              4   keys
//     8              2   shard_first
//    10              2   shard_count
//    12              2   stores
//    14              2   leases
//    16              4   lease, ms
//    20              4   flags: 1 = the lease was shortened
//    24             16   namespace id
//    40    16 x stores   store ids
//     .    16 x leases   lease ids
//     .      16 x keys   key ids
//     . 2 x keys x sh.   per chunk: position among the stores, 0xFFFF = absent
//     .              4   CRC-32C of all before
//
// Little-endian. Which keys are present follows from their chunks.
#ifndef CISTERN_CLIENT_TICKET_H_
#define CISTERN_CLIENT_TICKET_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/client.h"

namespace cistern {

std::string SerializeTicket(const LookupResult& result);
// InvalidArgument: not a whole, sound ticket. Takes memory in proportion to its bytes only.
absl::StatusOr<LookupResult> ParseTicket(std::string_view bytes);

// Fills `present` and `leading_run` from `stores`.
void FillPresence(LookupResult* result);

}  // namespace cistern

#endif  // CISTERN_CLIENT_TICKET_H_
