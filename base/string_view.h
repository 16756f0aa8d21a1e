// The distribution's Abseil is built with its own string_view, which std::string_view does not
// convert to by itself. These two do, at no cost.
#ifndef CISTERN_BASE_STRING_VIEW_H_
#define CISTERN_BASE_STRING_VIEW_H_

#include <string_view>

#include "absl/strings/string_view.h"

namespace cistern {

inline absl::string_view AbslView(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view StdView(absl::string_view s) { return {s.data(), s.size()}; }

}  // namespace cistern

#endif  // CISTERN_BASE_STRING_VIEW_H_
