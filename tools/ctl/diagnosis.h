// What is wrong with a host, and how to fix it. Pure.
#ifndef CISTERN_TOOLS_CTL_DIAGNOSIS_H_
#define CISTERN_TOOLS_CTL_DIAGNOSIS_H_

#include <string>
#include <vector>

#include "tools/ctl/host_facts.h"

namespace cistern::ctl {

enum class Severity {
  kError,    // the RDMA that this host seems meant to have does not work
  kWarning,  // it works, worse than it could
  kNote,     // worth knowing
};
std::string SeverityName(Severity severity);  // "error", "warning", "note"

struct Finding {
  Severity severity = Severity::kNote;
  std::string about = {};  // "mlx5_0:1", "locked memory"
  std::string what = {};
  std::string fix = {};  // "" = nothing to do
};

// Errors first. A host without any RDMA is well (tcp and shared memory serve it) unless
// `require_rdma`.
std::vector<Finding> Diagnose(const HostFacts& facts, bool require_rdma);
bool HasErrors(const std::vector<Finding>& findings);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_DIAGNOSIS_H_
