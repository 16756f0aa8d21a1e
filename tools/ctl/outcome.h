// What became of one chunk, as a status whose code gives the exit code.
#ifndef CISTERN_TOOLS_CTL_OUTCOME_H_
#define CISTERN_TOOLS_CTL_OUTCOME_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/ids.h"
#include "client/client.h"
#include "proto/admin.pb.h"
#include "tools/ctl/context.h"

namespace cistern::ctl {

// `verb` ended with `code`: Unavailable and DeadlineExceeded keep their meaning.
absl::Status OutcomeOf(const std::string& verb, ChunkCode code, const std::string& message);

// Unavailable, with the stores' names, when no store that holds the chunk serves it now.
absl::Status CheckServed(const admin::ChunkInfo& chunk);

// The chunk `what` (for people) was a miss. NotFound when nothing has it; Unavailable when a store
// has it that cannot be reached, or when no store at all serves. Asks the master; where that does
// not answer, NotFound.
absl::Status ExplainMiss(const Context& context, const std::string& ns, const KeyId& id,
                         uint16_t shard, const std::string& what);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_OUTCOME_H_
