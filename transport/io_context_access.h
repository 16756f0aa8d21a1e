// The wires' door into an IoContext.
#ifndef CISTERN_TRANSPORT_IO_CONTEXT_ACCESS_H_
#define CISTERN_TRANSPORT_IO_CONTEXT_ACCESS_H_

#include "transport/io_context.h"

namespace cistern::transport {

class IoThread;

// Every IoContext is made by IoContext::Create.
IoThread* IoThreadOf(IoContext* context);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_IO_CONTEXT_ACCESS_H_
