// The Namespace that the library hands out.
#ifndef CISTERN_CLIENT_NAMESPACE_IMPL_H_
#define CISTERN_CLIENT_NAMESPACE_IMPL_H_

#include <memory>
#include <string>

#include "base/key_hash.h"
#include "client/client.h"
#include "client/client_core.h"
#include "client/open_namespace.h"

namespace cistern {

// Thread-safe: immutable but for the core.
class NamespaceImpl final : public Namespace {
 public:
  NamespaceImpl(std::shared_ptr<ClientCore> core, std::shared_ptr<const OpenNamespaceInfo> info)
      : core_(std::move(core)), info_(std::move(info)), hasher_(info_->id) {}

  const NamespaceId& id() const override { return info_->id; }
  const std::string& name() const override { return info_->name; }
  const NamespaceOptions& options() const override { return info_->options; }

  absl::StatusOr<KeyId> Hash(std::string_view key) const override;
  absl::Status HashMany(absl::Span<const std::string_view> keys,
                        std::vector<KeyId>* out) const override;

  absl::StatusOr<LookupResult> Lookup(absl::Span<const KeyId> ids,
                                      const LookupOptions& options) override;
  absl::StatusOr<std::vector<bool>> Exists(absl::Span<const KeyId> ids,
                                           const LookupOptions& options) override;
  absl::StatusOr<LookupResult> Adopt(std::string_view ticket) override;
  absl::Status Release(absl::Span<const LeaseId> leases, const CallOptions& options) override;

  BatchResult BatchPut(absl::Span<const PutItem> items, const PutOptions& options) override;
  BatchResult BatchGet(absl::Span<const GetItem> items, const GetOptions& options) override;
  absl::Status Prefetch(absl::Span<const KeyId> ids, const LookupOptions& options) override;
  BatchResult Remove(absl::Span<const KeyId> ids, const RemoveOptions& options) override;
  absl::StatusOr<uint64_t> RemoveAll(const RemoveOptions& options) override;
  absl::StatusOr<KeyPage> ListKeys(std::string_view pattern, const ListOptions& options) override;
  absl::StatusOr<MatchRemoval> RemoveMatching(std::string_view pattern,
                                              const RemoveOptions& options) override;

  Pending<absl::StatusOr<LookupResult>> LookupAsync(absl::Span<const KeyId> ids,
                                                    const LookupOptions& options) override;
  Pending<BatchResult> BatchPutAsync(absl::Span<const PutItem> items,
                                     const PutOptions& options) override;
  PendingGet BatchGetAsync(absl::Span<const GetItem> items, const GetOptions& options) override;

 private:
  const std::shared_ptr<ClientCore> core_;
  const std::shared_ptr<const OpenNamespaceInfo> info_;
  const KeyHasher hasher_;
};

// The namespace as the master's reply describes it. Internal: the reply is not about what was asked
// for.
absl::StatusOr<std::shared_ptr<const OpenNamespaceInfo>> MakeOpenNamespace(
    std::string_view name, std::string_view fingerprint, const wire::NamespaceInfo& info);
wire::NamespaceOptions ToWire(const NamespaceOptions& options);
NamespaceOptions FromWire(const wire::NamespaceOptions& options);

}  // namespace cistern

#endif  // CISTERN_CLIENT_NAMESPACE_IMPL_H_
