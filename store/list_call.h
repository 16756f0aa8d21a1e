// Serves ListKeys.
#ifndef CISTERN_STORE_LIST_CALL_H_
#define CISTERN_STORE_LIST_CALL_H_

#include <memory>

#include "store/service_context.h"
#include "transport/server.h"

namespace cistern::store {

// One page, made on the maintenance thread within a few milliseconds of its time; the table is
// looked at in short holds and matched against the pattern outside of them.
void ServeListKeys(const ServiceContext& context, std::unique_ptr<transport::ServerCall> call);

}  // namespace cistern::store

#endif  // CISTERN_STORE_LIST_CALL_H_
