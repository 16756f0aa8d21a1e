// The ticket: a LookupResult as bytes, for another process (see LookupResult::Serialize). The byte
// table: docs/formats/ticket.md.
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
