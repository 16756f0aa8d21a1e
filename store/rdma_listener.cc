#include "store/rdma_listener.h"

#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/config.h"
#include "base/log.h"
#include "base/status.h"

namespace cistern::store {
namespace {

using transport::rdma::Host;
using transport::rdma::HostOptions;

// A segment's memory on the devices, as long as it lives.
class Registration {
 public:
  Registration(std::shared_ptr<Host> host, std::string name, char* base, uint64_t bytes)
      : host_(std::move(host)), name_(std::move(name)), base_(base), bytes_(bytes) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Registration() {
    thread_.join();
    if (done_) host_->RemoveMemory(base_, bytes_);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  void Run() {
    const absl::Status added =
        host_->AddMemory(base_, bytes_, transport::rdma::MemoryRights::kLocal);
    done_ = added.ok();
    if (done_) {
      CISTERN_LOG(Info, "segment ", name_, ": ", FormatSize(bytes_), " registered for RDMA");
    } else {
      CISTERN_LOG(Error, "segment ", name_,
                  " is no RDMA device's to reach, and is copied: ", added.message());
    }
  }

  const std::shared_ptr<Host> host_;
  const std::string name_;
  char* const base_;
  const uint64_t bytes_;
  bool done_ = false;  // the thread's, until it is joined
  std::thread thread_;
};

}  // namespace

absl::StatusOr<HostOptions> RdmaHostOptions(const config::RdmaConfig& config) {
  HostOptions options;
  options.devices = config.devices();
  options.gid_index = config.gid_index();
  options.traffic_class = config.traffic_class();
  options.service_level = config.service_level();
  // Unset is the default, too: not every configuration comes from a file.
  if (!config.mtu().empty() && config.mtu() != "auto" &&
      !absl::SimpleAtoi(config.mtu(), &options.mtu_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("rdma.mtu = \"", config.mtu(), "\""));
  }
  options.queue_depth = config.queue_depth();
  options.max_inline_bytes = static_cast<uint32_t>(config.max_inline_bytes());
  options.retry_count = config.retry_count();
  options.timeout_exponent = transport::rdma::TimeoutExponent(
      absl::Milliseconds(static_cast<int64_t>(config.timeout_ms())));
  return options;
}

transport::Polling RdmaPolling(const config::RdmaConfig& config) {
  if (config.polling() == "busy") return transport::Polling::kBusy;
  return config.polling() == "event" ? transport::Polling::kEvent : transport::Polling::kAdaptive;
}

std::shared_ptr<Host> OpenRdmaHost(const config::RdmaConfig& config, bool has_token,
                                   std::string* why) {
  absl::StatusOr<std::shared_ptr<Host>> host = absl::UnavailableError("rdma.enabled is false");
  bool meant = false;
  if (config.enabled() && !has_token) {
    host = absl::UnavailableError("a pool without pool_token_file keeps to this host");
  } else if (config.enabled()) {
    const absl::StatusOr<HostOptions> options = RdmaHostOptions(config);
    host = options.ok() ? Host::Open(*options) : options.status();
    meant = !config.devices().empty() || absl::IsInvalidArgument(host.status());
  }
  if (host.ok()) return *std::move(host);
  *why = std::string(host.status().message());
  if (meant) {
    CISTERN_LOG(Error, "not listening for RDMA: ", *why);
  } else {
    CISTERN_LOG(Info, "not listening for RDMA: ", *why);
  }
  return nullptr;
}

std::shared_ptr<void> RegisterSegment(std::shared_ptr<Host> host, const std::string& name,
                                      char* base, uint64_t bytes) {
  if (host == nullptr) return nullptr;
  return std::make_shared<Registration>(std::move(host), name, base, bytes);
}

std::unique_ptr<transport::WireServer> ListenOnRdma(transport::RdmaServerOptions options,
                                                    transport::RequestHandler* handler,
                                                    std::string* why) {
  auto server = transport::ListenRdma(options, handler);
  if (!server.ok() && options.port != 0) {
    // It is only a number: clients hear which it is.
    options.port = 0;
    server = transport::ListenRdma(options, handler);
  }
  if (!server.ok()) {
    *why = std::string(server.status().message());
    CISTERN_LOG(Error, "not listening for RDMA: ", *why);
    return nullptr;
  }
  CISTERN_LOG(Info, "RDMA for clients: port ", (*server)->port(), " of ",
              absl::StrJoin(options.host->Addresses(), ", "));
  return *std::move(server);
}

}  // namespace cistern::store
