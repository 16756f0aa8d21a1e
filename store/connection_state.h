// What a store remembers of one connection: the namespaces bound on it, in order, and what its
// reports have cost.
#ifndef CISTERN_STORE_CONNECTION_STATE_H_
#define CISTERN_STORE_CONNECTION_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "store/chunk_store.h"
#include "store/report_limiter.h"
#include "transport/server.h"

namespace cistern::store {

// Loop thread only, but for what reports() points to.
class ConnectionState {
 public:
  static constexpr size_t kMaxBoundNamespaces = 4'096;

  // The state of the call's connection, made at first use.
  static ConnectionState& Of(transport::ServerConnection& connection) {
    if (connection.user_state == nullptr) {
      connection.user_state = std::make_shared<ConnectionState>();
    }
    return *static_cast<ConnectionState*>(connection.user_state.get());
  }

  // The next ref; a failed bind takes one too (nullopt), so that the peer can count along.
  // ResourceExhausted: too many on this connection.
  absl::StatusOr<uint32_t> Bind(std::optional<NamespaceIndex> ns) {
    if (bound_.size() >= kMaxBoundNamespaces) {
      return absl::ResourceExhaustedError("too many namespaces on one connection");
    }
    bound_.push_back(ns);
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
  std::vector<std::optional<NamespaceIndex>> bound_;  // ref - 1
  const std::shared_ptr<ReportLimiter> reports_ =
      std::make_shared<ReportLimiter>(ReportLimiter::kConnection);
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_CONNECTION_STATE_H_
