#include "tools/ctl/one_namespace.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::ctl {

absl::StatusOr<std::shared_ptr<Namespace>> OpenOne(const Context& context, Client& client,
                                                   const std::string& name,
                                                   const std::string& fingerprint, bool create,
                                                   const NamespaceOptions& options) {
  if (!fingerprint.empty()) return client.OpenNamespace(name, fingerprint, options);
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply stats, admin->Stats());
  for (const admin::NamespaceStats& ns : stats.namespaces()) {
    if (ns.name() != name) continue;
    // Fingerprints that cannot be printed come as hex.
    if (absl::StartsWith(ns.fingerprint(), "hex:")) {
      return client.OpenNamespace(name, absl::HexStringToBytes(ns.fingerprint().substr(4)));
    }
    return client.OpenNamespace(name, ns.fingerprint());
  }
  if (!create) return absl::NotFoundError(absl::StrCat("there is no namespace ", name));
  return client.OpenNamespace(name, kOwnNamespace, options);
}

}  // namespace cistern::ctl
