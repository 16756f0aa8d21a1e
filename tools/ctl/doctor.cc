// cisternctl doctor: what this host offers, what is wrong with it, and how to fix that.
#include <memory>

#include "absl/strings/numbers.h"
#include "base/config.h"
#include "base/status.h"
#include "proto/config.pb.h"
#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/diagnosis.h"
#include "tools/ctl/doctor_text.h"
#include "tools/ctl/host_facts.h"

namespace cistern::ctl {
namespace {

struct DoctorFlags {
  std::string devices;
  int gid_index = -1;
  bool require_rdma = false;
};

// What a client with this configuration would use; flags before its file.
absl::StatusOr<transport::rdma::PortOptions> Options(const Context& context,
                                                     const DoctorFlags& flags) {
  transport::rdma::PortOptions options;
  if (!context.connection.config.empty()) {
    config::ClientConfig config;
    CISTERN_RETURN_IF_ERROR(LoadConfigFile(context.connection.config, {}, &config).status());
    options.devices = config.rdma().devices();
    options.gid_index = config.rdma().gid_index();
    // "auto" is no number, and leaves the port's.
    uint32_t mtu = 0;
    if (absl::SimpleAtoi(config.rdma().mtu(), &mtu)) options.mtu_bytes = mtu;
  }
  if (!flags.devices.empty()) options.devices = flags.devices;
  if (flags.gid_index >= 0) options.gid_index = flags.gid_index;
  return options;
}

absl::Status Doctor(Context& context, const DoctorFlags& flags) {
  CISTERN_ASSIGN_OR_RETURN(const transport::rdma::PortOptions options, Options(context, flags));
  CISTERN_ASSIGN_OR_RETURN(const HostFacts facts, GatherHostFacts(options));
  const std::vector<Finding> findings = Diagnose(facts, flags.require_rdma);
  context.out << (context.json() ? DoctorJson(facts, findings) : DoctorText(facts, findings));
  if (HasErrors(findings)) context.exit_code = kExitFailed;
  return absl::OkStatus();
}

}  // namespace

void AddDoctor(const Command& app, Context& context) {
  auto flags = std::make_shared<DoctorFlags>();
  const Command sub = app.AddCommand(
      "doctor", "What this host offers to the RDMA wire, what is wrong, and how to fix it");
  sub.Footer(
      "Asks no master: it looks at the host that it runs on, as the user that it runs as.\n"
      "Exits 1 if an error is among its findings, else 0; a host without RDMA is well\n"
      "unless --require-rdma.");
  sub.AddOption("--devices", flags->devices, "as [rdma] devices: \"mlx5_0, mlx5_1:1\"");
  sub.AddOption("--gid-index", flags->gid_index, "as [rdma] gid_index").Range(0, 65535);
  sub.AddFlag("--require-rdma", flags->require_rdma, "having no usable RDMA port is an error");
  sub.OnUse([&context, flags] { context.Run([&] { return Doctor(context, *flags); }); });
}

}  // namespace cistern::ctl
