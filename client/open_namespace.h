// A namespace as the client keeps it open.
#ifndef CISTERN_CLIENT_OPEN_NAMESPACE_H_
#define CISTERN_CLIENT_OPEN_NAMESPACE_H_

#include <string>

#include "client/client.h"
#include "client/namespace_binding.h"

namespace cistern {

// Immutable.
struct OpenNamespaceInfo : NamespaceBinding {
  std::string name;
  NamespaceOptions options;  // those in force: the first opener's
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_OPEN_NAMESPACE_H_
