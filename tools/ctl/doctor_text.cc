#include "tools/ctl/doctor_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

using nlohmann::ordered_json;
using transport::rdma::ChosenPort;
using transport::rdma::Device;
using transport::rdma::DeviceLimits;
using transport::rdma::GidEntry;
using transport::rdma::Port;

std::string NameOf(const Device& device, const Port& port) {
  return absl::StrCat(device.name, ":", static_cast<int>(port.number));
}

const ChosenPort* ChosenOf(const HostFacts& facts, const std::string& name) {
  for (const ChosenPort& port : facts.choice.chosen) {
    if (port.name() == name) return &port;
  }
  return nullptr;
}

std::string LockedText(const HostFacts& facts) {
  const auto& memory = facts.locked_memory;
  if (memory.limit_bytes) return Bytes(*memory.limit_bytes) + " at most";
  return memory.exempt ? "no limit for this user (CAP_IPC_LOCK)" : "unlimited";
}

std::string Ports(const HostFacts& facts) {
  Table table({{"PORT"},
               {"DRIVER"},
               {"LINK"},
               {"STATE"},
               {"GBIT/S", Table::Align::kRight},
               {"MTU", Table::Align::kRight},
               {"GID", Table::Align::kRight},
               {"ADDRESS"},
               {"NUMA"},
               {"USED"}});
  for (const Device& device : facts.devices) {
    for (const Port& port : device.ports) {
      const ChosenPort* chosen = ChosenOf(facts, NameOf(device, port));
      table.AddRow(
          {NameOf(device, port), device.driver, LinkLayerName(port.layer),
           LinkStateName(port.state),
           port.gigabits_per_second == 0 ? "-" : absl::StrFormat("%g", port.gigabits_per_second),
           absl::StrCat(port.active_mtu_bytes),
           chosen == nullptr ? "-" : absl::StrCat(chosen->gid.index),
           chosen == nullptr ? "-" : chosen->address,
           device.numa_node < 0 ? "-" : absl::StrCat(device.numa_node),
           chosen == nullptr ? "no" : "yes"});
    }
  }
  return table.empty() ? "" : table.ToString("  ");
}

ordered_json LimitsJson(const DeviceLimits& limits) {
  return {{"max_region_bytes", limits.max_region_bytes},
          {"max_regions", limits.max_regions},
          {"max_windows", limits.max_windows},
          {"windows_2b", limits.windows_2b},
          {"max_queue_pairs", limits.max_queue_pairs},
          {"max_work_requests", limits.max_work_requests},
          {"max_pieces", limits.max_pieces},
          {"max_shared_work_requests", limits.max_shared_work_requests},
          {"max_completions", limits.max_completions},
          {"max_reads_in", limits.max_reads_in},
          {"max_reads_out", limits.max_reads_out}};
}

ordered_json PortJson(const HostFacts& facts, const Device& device, const Port& port) {
  const std::string name = NameOf(device, port);
  const ChosenPort* chosen = ChosenOf(facts, name);
  ordered_json out = {{"name", name},
                      {"state", LinkStateName(port.state)},
                      {"link_layer", LinkLayerName(port.layer)},
                      {"gigabits_per_second", port.gigabits_per_second},
                      {"active_mtu_bytes", port.active_mtu_bytes},
                      {"max_mtu_bytes", port.max_mtu_bytes},
                      {"used", chosen != nullptr}};
  if (chosen != nullptr) {
    out["gid_index"] = chosen->gid.index;
    out["address"] = chosen->address;
  }
  for (const auto& passed : facts.choice.passed) {
    if (passed.name == name) out["why_not"] = passed.why;
  }
  out["gids"] = ordered_json::array();
  for (const GidEntry& gid : port.gids) {
    out["gids"].push_back({{"index", gid.index},
                           {"gid", transport::rdma::GidText(gid.gid)},
                           {"type", transport::rdma::GidTypeName(gid.type)},
                           {"net_device", gid.net_device}});
  }
  out["errors"] = ordered_json::object();
  for (const PortErrors& errors : facts.errors) {
    if (errors.port != name) continue;
    for (const auto& [counter, count] : errors.counts) out["errors"][counter] = count;
  }
  // The kernel keeps counts, no times.
  out["seconds_since_last_error"] = nullptr;
  return out;
}

ordered_json DeviceJson(const HostFacts& facts, const Device& device) {
  ordered_json out = {{"name", device.name},
                      {"driver", device.driver},
                      {"firmware", device.firmware},
                      {"pci_address", device.pci_address}};
  out["numa_node"] = device.numa_node < 0 ? ordered_json(nullptr) : ordered_json(device.numa_node);
  out["limits"] = LimitsJson(device.limits);
  out["ports"] = ordered_json::array();
  for (const Port& port : device.ports) out["ports"].push_back(PortJson(facts, device, port));
  return out;
}

}  // namespace

std::string DoctorText(const HostFacts& facts, const std::vector<Finding>& findings) {
  std::string out = absl::StrCat("Linux ", facts.kernel, "; libibverbs and librdmacm: ",
                                 facts.libraries.ok() ? "found" : "not usable", "\n");
  absl::StrAppend(&out, Ports(facts));
  absl::StrAppend(&out, "locked memory: ", LockedText(facts), "\n");
  absl::StrAppend(&out, "huge pages: ", facts.huge_pages_total, " of ",
                  Bytes(facts.huge_page_bytes), ", ", facts.huge_pages_free, " free\n");
  absl::StrAppend(&out, "kernel modules: ",
                  facts.modules.empty() ? "none of RDMA" : absl::StrJoin(facts.modules, ", "),
                  "\n");
  if (!facts.devices.empty()) {
    absl::StrAppend(&out, "last port error: not known (the kernel keeps counts, no times)\n");
  }
  for (const Finding& finding : findings) {
    absl::StrAppend(&out, "\n", SeverityName(finding.severity), ": ", finding.about, ": ",
                    finding.what, "\n");
    if (!finding.fix.empty()) absl::StrAppend(&out, "  fix: ", finding.fix, "\n");
  }
  if (!HasErrors(findings)) absl::StrAppend(&out, "\nnothing is wrong\n");
  return out;
}

std::string DoctorJson(const HostFacts& facts, const std::vector<Finding>& findings) {
  ordered_json out = {{"ok", !HasErrors(findings)},
                      {"kernel", facts.kernel},
                      {"libraries", facts.libraries.ok()},
                      {"devices", ordered_json::array()}};
  for (const Device& device : facts.devices) out["devices"].push_back(DeviceJson(facts, device));
  const auto& memory = facts.locked_memory;
  out["locked_memory"]["limit_bytes"] =
      memory.limit_bytes ? ordered_json(*memory.limit_bytes) : ordered_json(nullptr);
  out["locked_memory"]["exempt"] = memory.exempt;
  out["huge_pages"] = {{"page_bytes", facts.huge_page_bytes},
                       {"total", facts.huge_pages_total},
                       {"free", facts.huge_pages_free}};
  out["modules"] = facts.modules;
  out["findings"] = ordered_json::array();
  for (const Finding& finding : findings) {
    out["findings"].push_back({{"severity", SeverityName(finding.severity)},
                               {"about", finding.about},
                               {"what", finding.what},
                               {"fix", finding.fix}});
  }
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace cistern::ctl
