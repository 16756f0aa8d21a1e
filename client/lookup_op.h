// Namespace::Lookup: any number of keys, split into requests that the master takes.
#ifndef CISTERN_CLIENT_LOOKUP_OP_H_
#define CISTERN_CLIENT_LOOKUP_OP_H_

#include <memory>
#include <vector>

#include "client/client_core.h"
#include "client/namespace_binding.h"
#include "client/operation.h"
#include "proto/master.pb.h"

namespace cistern {

// Requests go one after the other: the leading run ends in one of them, and those behind it take
// no lease (unless `sparse`). What this client put a moment ago and the master has not heard of is
// asked for again, from there on, until it has: its lease is the master's like any other.
class LookupOp final : public Operation {
 public:
  LookupOp(std::shared_ptr<ClientCore> core, std::shared_ptr<const NamespaceBinding> ns,
           absl::Span<const KeyId> ids, const LookupOptions& options, bool async);

  // Once, when done.
  absl::StatusOr<LookupResult> Take();

 private:
  void Begin() override;
  void SendNext();
  void OnReply(size_t first, size_t count, const absl::Status& status,
               const wire::LookupReply& reply);
  absl::Status Merge(size_t first, size_t count, const wire::LookupReply& reply);
  // The position of a store in the result's store_ids, a new one if need be.
  uint16_t PositionOf(LocalStore store);
  void End(const absl::Status& status);

  const std::shared_ptr<ClientCore> core_;
  const std::shared_ptr<const NamespaceBinding> ns_;
  const absl::Span<const KeyId> ids_;
  const LookupOptions options_;
  size_t next_ = 0;
  std::vector<uint16_t> positions_;  // by local number
  absl::Status status_;
  LookupResult result_;
};

// The first key in [first, end) that is not `present` and that this client has just put; `end`:
// none.
size_t FirstFresh(const ClientCore& core, absl::Span<const KeyId> ids, const LookupOptions& options,
                  const std::vector<bool>& present, size_t first, size_t end);

// InvalidArgument unless shards [first, first + count) exist.
absl::Status CheckShards(uint16_t first, uint16_t count);

}  // namespace cistern

#endif  // CISTERN_CLIENT_LOOKUP_OP_H_
