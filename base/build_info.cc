#include "base/build_info.h"

namespace cistern {

absl::string_view BuildMode() {
#if defined(__SANITIZE_ADDRESS__)
  return "asan";
#elif defined(__SANITIZE_THREAD__)
  return "tsan";
#elif defined(__OPTIMIZE__) && defined(NDEBUG)
  return "opt";
#else
  return "dbg";
#endif
}

}  // namespace cistern
