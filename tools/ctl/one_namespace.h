// The namespace that put and get use.
#ifndef CISTERN_TOOLS_CTL_ONE_NAMESPACE_H_
#define CISTERN_TOOLS_CTL_ONE_NAMESPACE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "tools/ctl/context.h"

namespace cistern::ctl {

inline constexpr char kOwnNamespace[] = "cisternctl";

// Opens `name`. An empty `fingerprint` means the one that the namespace has (asked of the admin
// service), or "cisternctl" for a new one when `create`. NotFound: there is none and !create.
// `options`: of a new one.
absl::StatusOr<std::shared_ptr<Namespace>> OpenOne(const Context& context, Client& client,
                                                   const std::string& name,
                                                   const std::string& fingerprint, bool create,
                                                   const NamespaceOptions& options = {});

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_ONE_NAMESPACE_H_
