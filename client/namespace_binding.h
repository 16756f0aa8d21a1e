// What it takes to name a namespace on a connection.
#ifndef CISTERN_CLIENT_NAMESPACE_BINDING_H_
#define CISTERN_CLIENT_NAMESPACE_BINDING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "transport/channel.h"

namespace cistern {

// An open namespace, as daemons are told of it. Immutable.
struct NamespaceBinding {
  NamespaceId id;
  std::string store_meta;   // wire::BindNamespace
  std::string master_meta;  // wire::BindNamespaceRequest
};

// The namespaces bound on one channel, in the order of their binds: the n-th has the ref n on
// every connection (see wire::NamespaceBound), so a request can name it before the answer is here.
// Not thread-safe.
class BindList {
 public:
  // The ref of `id`; binds it first if need be, with a preamble that `type` and `meta` make.
  uint32_t Bind(transport::Channel& channel, transport::FrameType type, const NamespaceId& id,
                const std::string& meta,
                std::function<absl::Status(transport::FrameType, std::string_view, uint32_t ref)>
                    check_answer);

 private:
  std::vector<NamespaceId> bound_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_NAMESPACE_BINDING_H_
