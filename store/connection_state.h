// What a store remembers of one connection: the namespaces bound on it, in order (they stay bound
// in the store as long as the connection is), and what its reports have cost.
#ifndef CISTERN_STORE_CONNECTION_STATE_H_
#define CISTERN_STORE_CONNECTION_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "store/chunk_store.h"
#include "store/report_limiter.h"
#include "transport/server.h"

namespace cistern::store {

// Loop thread only, but for what reports() points to.
class ConnectionState {
 public:
  static constexpr size_t kMaxBoundNamespaces = 4'096;

  explicit ConnectionState(ChunkStore& chunks) : chunks_(chunks) {}
  ~ConnectionState() {
    for (const std::optional<NamespaceIndex>& ns : bound_) {
      if (ns.has_value()) chunks_.UnbindNamespace(*ns);
    }
  }
  ConnectionState(const ConnectionState&) = delete;
  ConnectionState& operator=(const ConnectionState&) = delete;

  // The state of the call's connection, made at first use.
  static ConnectionState& Of(transport::ServerConnection& connection, ChunkStore& chunks) {
    if (connection.user_state == nullptr) {
      connection.user_state = std::make_shared<ConnectionState>(chunks);
    }
    return *static_cast<ConnectionState*>(connection.user_state.get());
  }

  // Binds, and gives the next ref; a failed bind takes one too, so that the peer can count along.
  // ResourceExhausted: too many on this connection.
  absl::StatusOr<uint32_t> Bind(const absl::StatusOr<NamespaceRecord>& record) {
    if (bound_.size() >= kMaxBoundNamespaces) {
      return absl::ResourceExhaustedError("too many namespaces on one connection");
    }
    bound_.emplace_back();
    CISTERN_RETURN_IF_ERROR(record.status());
    CISTERN_ASSIGN_OR_RETURN(bound_.back(), chunks_.BindNamespace(*record));
    return static_cast<uint32_t>(bound_.size());
  }
  absl::StatusOr<NamespaceIndex> Find(uint32_t ns_ref) const {
    if (ns_ref == 0 || ns_ref > bound_.size() || !bound_[ns_ref - 1].has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("namespace ref ", ns_ref, " is not bound on this connection"));
    }
    return *bound_[ns_ref - 1];
  }
  const std::shared_ptr<ReportLimiter>& reports() const { return reports_; }

 private:
  ChunkStore& chunks_;
  std::vector<std::optional<NamespaceIndex>> bound_;  // ref - 1
  const std::shared_ptr<ReportLimiter> reports_ =
      std::make_shared<ReportLimiter>(ReportLimiter::kConnection);
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_CONNECTION_STATE_H_
