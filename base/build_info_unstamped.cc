// Stands in for the generated commit id in builds that are not stamped.
#include "base/build_info.h"

namespace cistern {

absl::string_view CommitId() { return "unstamped"; }

}  // namespace cistern
