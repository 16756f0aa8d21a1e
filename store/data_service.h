// The store's data plane: gives each request frame to the code of its kind.
#ifndef CISTERN_STORE_DATA_SERVICE_H_
#define CISTERN_STORE_DATA_SERVICE_H_

#include <memory>

#include "store/service_context.h"
#include "transport/server.h"

namespace cistern::store {

// Thread-safe: it holds no state of its own. Borrows what the context names; must outlive the wires
// that serve it and every call they gave it.
class DataService final : public transport::RequestHandler {
 public:
  explicit DataService(ServiceContext context) : context_(std::move(context)) {}
  void OnRequest(std::unique_ptr<transport::ServerCall> call) override;

 private:
  void ServeBindNamespace(std::unique_ptr<transport::ServerCall> call);
  void ServeReportBad(std::unique_ptr<transport::ServerCall> call);

  const ServiceContext context_;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_DATA_SERVICE_H_
