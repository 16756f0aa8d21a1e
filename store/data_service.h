// The store's data plane: gives each request frame to the code of its kind.
#ifndef CISTERN_STORE_DATA_SERVICE_H_
#define CISTERN_STORE_DATA_SERVICE_H_

#include <memory>

#include "store/report_limiter.h"
#include "store/service_context.h"
#include "transport/server.h"

namespace cistern::store {

struct BadReport;

// Thread-safe: of its own it holds only what reports have cost. Borrows what the context names;
// must outlive the wires that serve it and every call they gave it.
class DataService final : public transport::RequestHandler {
 public:
  explicit DataService(ServiceContext context) : context_(std::move(context)) {}
  void OnRequest(std::unique_ptr<transport::ServerCall> call) override;

 private:
  void ServeBindNamespace(std::unique_ptr<transport::ServerCall> call);
  void ServeReportBad(std::unique_ptr<transport::ServerCall> call);

  // One chunk a task: what else the maintenance thread does (room for waiting puts, expiry) must
  // not wait until a thousand chunks of 1 GiB are hashed.
  void CheckReported(std::shared_ptr<transport::ServerCall> call,
                     std::shared_ptr<BadReport> report);
  wire::ChunkStatus CheckOne(const BadReport& report, size_t i);

  const ServiceContext context_;
  ReportLimiter reports_{ReportLimiter::kStore};
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_DATA_SERVICE_H_
