// What doctor found, for people and for programs. Pure.
#ifndef CISTERN_TOOLS_CTL_DOCTOR_TEXT_H_
#define CISTERN_TOOLS_CTL_DOCTOR_TEXT_H_

#include <string>
#include <vector>

#include "tools/ctl/diagnosis.h"
#include "tools/ctl/host_facts.h"

namespace cistern::ctl {

std::string DoctorText(const HostFacts& facts, const std::vector<Finding>& findings);
// One object; its keys are a promise to scripts: docs/rdma.md.
std::string DoctorJson(const HostFacts& facts, const std::vector<Finding>& findings);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_DOCTOR_TEXT_H_
