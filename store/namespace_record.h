// A namespace as a store knows it, and the slots that keep it in a segment.
#ifndef CISTERN_STORE_NAMESPACE_RECORD_H_
#define CISTERN_STORE_NAMESPACE_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/ids.h"
#include "proto/types.pb.h"
#include "store/segment_format.h"

namespace cistern::store {

struct NamespaceRecord {
  NamespaceId id;
  std::string tenant;
  std::string name;
  std::string fingerprint;
  wire::NamespaceOptions options;
  Version valid_from;  // chunks of a lower version were removed for good
};

// InvalidArgument: a field is longer than its slot holds, the name is empty, or the id is not the
// one derived from (tenant, name, fingerprint).
absl::Status CheckNamespaceRecord(const NamespaceRecord& record);
void ToNamespaceInfo(const NamespaceRecord& record, wire::NamespaceInfo* out);

// Writes `record` over whatever the slot held. Killed half-way it leaves a free slot.
// Precondition: CheckNamespaceRecord(record).ok().
void WriteNamespaceSlot(const NamespaceRecord& record, NamespaceSlot* slot);
void ClearNamespaceSlot(NamespaceSlot* slot);
// nullopt: the slot is free or damaged; `damaged` (may be null) tells which.
std::optional<NamespaceRecord> ReadNamespaceSlot(const NamespaceSlot& slot, bool* damaged);

}  // namespace cistern::store

#endif  // CISTERN_STORE_NAMESPACE_RECORD_H_
