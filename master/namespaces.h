// The pool's namespaces, in memory and durably.
#ifndef CISTERN_MASTER_NAMESPACES_H_
#define CISTERN_MASTER_NAMESPACES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "master/admin_views.h"
#include "master/state_store.h"
#include "master/types.h"
#include "proto/types.pb.h"

namespace cistern::master {

// Promise: a name stands for one fingerprint and the options of its first opener until it is
// removed, over restarts. Ids are derived, so a namespace that only a store knows (its name was
// removed, or the master lost its state) can be counted and read beside the one that has the name;
// the two never mix, and the name is marked as in conflict.
// Role: OpenNamespace, session Hellos, record appliers. Thread-safety: none. Borrows the
// StateStore.
class NamespaceRegistry {
 public:
  static constexpr size_t kMaxNameBytes = 256;
  static constexpr size_t kMaxFingerprintBytes = 4096;
  static constexpr size_t kMaxRemembered = 4096;

  struct Namespace {
    wire::NamespaceInfo info;
    NamespaceId id;
    bool named = false;    // holds its name; else known from a store, or removed
    bool removed = false;  // by Remove, and not opened since: whatever a store has of it is to go
    // Opened, and not confirmed to be durable: what it was before.
    struct Before {
      wire::NamespaceInfo info;
      bool removed = false;
    };
    std::unique_ptr<Before> before;
    uint64_t chunk_count = 0;
    uint64_t payload_bytes = 0;
    NamespaceCounters counters;
  };
  struct Opened {
    NamespaceIndex index;
    bool created = false;
  };

  NamespaceRegistry(StateStore& state, uint32_t max_namespaces)
      : state_(state), max_namespaces_(max_namespaces) {}

  // At start: what the state store had.
  absl::Status Restore(const std::vector<wire::NamespaceInfo>& infos);
  // InvalidArgument: bounds. FailedPrecondition: another fingerprint has the name.
  // ResourceExhausted: too many. A created namespace has been handed to the state store.
  absl::StatusOr<Opened> Open(std::string_view tenant, std::string_view name,
                              std::string_view fingerprint, const wire::NamespaceOptions& options);
  // What Open created is on disk. False: the name is not its any more (removed, or withdrawn).
  bool Confirm(NamespaceIndex index);
  // What Open created could not be saved: unless it was confirmed since, it is as before, and the
  // state store is told so. Its index goes on as long as the process.
  absl::Status Withdraw(NamespaceIndex index);
  // A store holds chunks of it. Takes the name when it is free; else marks the conflict.
  absl::StatusOr<NamespaceIndex> Report(const wire::NamespaceInfo& info);
  // Frees the name. NotFound: no such name. The index goes on as long as the process.
  // `remember`: durably (a few thousand of them), so that a later master too has the chunks removed
  // of a store that is away now.
  absl::StatusOr<NamespaceIndex> Remove(std::string_view tenant, std::string_view name,
                                        bool remember = false);

  NamespaceIndex FindByName(std::string_view tenant, std::string_view name) const;
  NamespaceIndex FindById(const NamespaceId& id) const;
  bool Has(NamespaceIndex index) const { return index.value < namespaces_.size(); }
  const Namespace& at(NamespaceIndex index) const { return namespaces_[index.value]; }
  size_t size() const { return namespaces_.size(); }

  NamespaceCounters& counters(NamespaceIndex index) { return namespaces_[index.value].counters; }
  void AddChunk(NamespaceIndex index, uint32_t length);
  void RemoveChunk(NamespaceIndex index, uint32_t length);

 private:
  // Derives and checks; fills info->id.
  static absl::Status Complete(wire::NamespaceInfo* info);
  // Durably: that it was removed, or nothing.
  absl::Status SaveRemoved(const wire::NamespaceInfo& info, bool remember);
  absl::StatusOr<NamespaceIndex> Add(wire::NamespaceInfo info);
  static std::string NameKey(std::string_view tenant, std::string_view name);

  StateStore& state_;
  const uint32_t max_namespaces_;
  size_t removed_count_ = 0;  // of those remembered
  std::vector<Namespace> namespaces_;
  absl::flat_hash_map<NamespaceId, NamespaceIndex> by_id_;
  absl::flat_hash_map<std::string, NamespaceIndex> by_name_;
};

// "bytes" as people read them: as it is when printable ASCII, else "hex:...".
std::string PrintableFingerprint(std::string_view fingerprint);

}  // namespace cistern::master

#endif  // CISTERN_MASTER_NAMESPACES_H_
