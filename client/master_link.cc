#include "client/master_link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/master.pb.h"

namespace cistern {
namespace {

absl::Status CheckBound(transport::FrameType type, std::string_view meta, uint32_t ref) {
  wire::OpenNamespaceReply reply;
  if (type != transport::FrameType::kOpenNamespaceReply ||
      !reply.ParseFromArray(meta.data(), static_cast<int>(meta.size())) || reply.ns_ref() != ref) {
    return absl::InternalError("the master numbers namespaces otherwise than by their order");
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t MasterLink::Bind(const NamespaceBinding& ns) {
  MutexLock lock(mutex_);
  return binds_.Bind(*channel_, transport::FrameType::kMasterBindNamespace, ns.id, ns.master_meta,
                     CheckBound);
}

uint64_t MasterLink::map_version() const {
  MutexLock lock(mutex_);
  return map_version_;
}

absl::Status MasterLink::Learn(const wire::PartitionMap& map) {
  const std::string& buckets = map.bucket_partition();
  if (map.masters_size() > 1 || buckets.find_first_not_of('\0') != std::string::npos) {
    return absl::FailedPreconditionError(
        "the pool's keys are spread over several masters, which this version does not know");
  }
  MutexLock lock(mutex_);
  map_version_ = map.version();
  return absl::OkStatus();
}

size_t MasterLink::MaxChunks() const {
  const uint32_t limit = channel_->peer().max_keys;
  return limit == 0 ? kMaxKeysPerRequest : std::min<size_t>(limit, kMaxKeysPerRequest);
}

size_t MasterLink::KeysPerRequest(size_t shard_count, size_t bytes_per_key,
                                  size_t bytes_per_chunk) const {
  constexpr size_t kOtherFields = 4096;
  size_t meta = channel_->peer().max_meta_bytes;
  if (meta == 0) meta = transport::kMaxMetaBytesTcp;
  meta -= std::min(meta, kOtherFields);
  const size_t by_bytes = meta / (bytes_per_key + shard_count * bytes_per_chunk);
  return std::max<size_t>(1, std::min(MaxChunks() / shard_count, by_bytes));
}

absl::Status MasterLink::Explain(const absl::Status& status) const {
  const absl::Status reason = channel_->last_error();
  std::string context = absl::StrCat("master ", address_);
  if (absl::IsDeadlineExceeded(status) && !reason.ok()) {
    absl::StrAppend(&context, ": ", reason.message());
  }
  return Annotate(status, context);
}

}  // namespace cistern
