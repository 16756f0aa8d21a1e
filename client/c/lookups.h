// Lookups' answers, for cistern_lookup_keys and its asynchronous form.
#ifndef CISTERN_CLIENT_C_LOOKUPS_H_
#define CISTERN_CLIENT_C_LOOKUPS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "client/cistern.h"
#include "client/client.h"

namespace cistern::c {

absl::StatusOr<LookupOptions> FromC(const cistern_lookup_options* options);

// Writes what is asked for (not NULL): `present` has room for result.present.size().
// InvalidArgument: info's size, before anything is written.
absl::Status AnswerLookup(const std::shared_ptr<Namespace>& ns, LookupResult result,
                          cistern_lookup_info* info, uint8_t* present, cistern_lookup* lookup);

}  // namespace cistern::c

#endif  // CISTERN_CLIENT_C_LOOKUPS_H_
