// One put request from its arrival to its answer (proto/data.proto tells the messages):
//   1. parse and check; reserve slots, waiting for room within the deadline
//   2. answer Ready, or read on: the payload came in line
//   3. receive, check digests, commit the batch, answer Done
#ifndef CISTERN_STORE_PUT_CALL_H_
#define CISTERN_STORE_PUT_CALL_H_

#include <memory>

#include "store/connection_state.h"
#include "store/service_context.h"
#include "transport/server.h"

namespace cistern::store {

// Takes the call and ends it. On the connection's loop thread.
void ServePut(const ServiceContext& context, std::unique_ptr<transport::ServerCall> call);

}  // namespace cistern::store

#endif  // CISTERN_STORE_PUT_CALL_H_
