// One get request (proto/data.proto tells the messages): find the chunks and hold them in place,
// answer with their columns, stream their digests and bytes.
#ifndef CISTERN_STORE_GET_CALL_H_
#define CISTERN_STORE_GET_CALL_H_

#include <memory>

#include "store/service_context.h"
#include "transport/server.h"

namespace cistern::store {

// Takes the call and ends it. On the connection's loop thread.
void ServeGet(const ServiceContext& context, std::unique_ptr<transport::ServerCall> call);

}  // namespace cistern::store

#endif  // CISTERN_STORE_GET_CALL_H_
