// cisternctl chunks ls|rm --match: chunks by a pattern over the keys that their namespace keeps.
#ifndef CISTERN_TOOLS_CTL_MATCHING_CHUNKS_H_
#define CISTERN_TOOLS_CTL_MATCHING_CHUNKS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tools/ctl/context.h"

namespace cistern::ctl {

// Both ask the stores, over the data port. Unavailable after the output when some did not answer.
absl::Status ListMatching(const Context& context, const std::string& ns, const std::string& pattern,
                          uint64_t limit);
// `dry_run`: only says how many there are.
absl::Status RemoveMatching(const Context& context, const std::string& ns,
                            const std::string& pattern, bool force, bool dry_run);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_MATCHING_CHUNKS_H_
