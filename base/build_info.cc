#include "base/build_info.h"

// gcc says it by a macro, Clang by a feature.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CISTERN_ASAN 1
#elif __has_feature(thread_sanitizer)
#define CISTERN_TSAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define CISTERN_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define CISTERN_TSAN 1
#endif

namespace cistern {

absl::string_view BuildMode() {
#if defined(CISTERN_ASAN)
  return "asan";
#elif defined(CISTERN_TSAN)
  return "tsan";
#elif defined(__OPTIMIZE__) && defined(NDEBUG)
  return "opt";
#else
  return "dbg";
#endif
}

}  // namespace cistern
