// The release: what --version prints and what peers see in the handshake.
#ifndef CISTERN_BASE_VERSION_H_
#define CISTERN_BASE_VERSION_H_

#include <string_view>

namespace cistern {

inline constexpr std::string_view SoftwareVersion() { return "0.1.0"; }

}  // namespace cistern

#endif  // CISTERN_BASE_VERSION_H_
