#include "master/namespaces.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "base/string_view.h"

namespace cistern::master {
namespace {

absl::Status CheckOptions(const wire::NamespaceOptions& options) {
  const uint32_t part = options.part_bytes();
  if (part != 0 && (part < kMinPartBytes || (part & (part - 1)) != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("part_bytes ", part, " is no power of two of 4096 or more"));
  }
  if (!wire::VerifyPolicy_IsValid(options.verify()) ||
      !wire::DigestKind_IsValid(options.digest())) {
    return absl::InvalidArgumentError("namespace options with values this version does not know");
  }
  return absl::OkStatus();
}

}  // namespace

std::string PrintableFingerprint(std::string_view fingerprint) {
  const bool printable = std::all_of(fingerprint.begin(), fingerprint.end(),
                                     [](char c) { return c >= 0x20 && c < 0x7F; });
  if (printable) return std::string(fingerprint);
  return absl::StrCat("hex:", absl::BytesToHexString(AbslView(fingerprint)));
}

std::string NamespaceRegistry::NameKey(std::string_view tenant, std::string_view name) {
  std::string key(tenant);
  key.push_back('\0');
  key.append(name);
  return key;
}

absl::Status NamespaceRegistry::Complete(wire::NamespaceInfo* info) {
  if (info->name().empty() || info->name().size() > kMaxNameBytes ||
      info->name().find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("a namespace's name has 1 to ", kMaxNameBytes, " bytes, none of them zero"));
  }
  if (info->fingerprint().size() > kMaxFingerprintBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a fingerprint has at most ", kMaxFingerprintBytes, " bytes"));
  }
  if (!info->tenant().empty()) {
    return absl::InvalidArgumentError("tenants are not offered by this version: leave it empty");
  }
  CISTERN_RETURN_IF_ERROR(CheckOptions(info->options()));
  const NamespaceId id = DeriveNamespaceId(info->tenant(), info->name(), info->fingerprint());
  if (!info->id().empty() && info->id() != id.view()) {
    return absl::InvalidArgumentError(
        absl::StrCat("namespace \"", info->name(), "\": its id is not that of its fingerprint"));
  }
  info->set_id(id.bytes.data(), id.bytes.size());
  return absl::OkStatus();
}

absl::StatusOr<NamespaceIndex> NamespaceRegistry::Add(wire::NamespaceInfo info) {
  if (namespaces_.size() >= std::min(max_namespaces_, NamespaceIndex::kMax)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the pool has ", namespaces_.size(), " namespaces, as many as it may"));
  }
  const NamespaceIndex index(static_cast<uint32_t>(namespaces_.size()));
  Namespace& ns = namespaces_.emplace_back();
  ns.id = NamespaceId::FromBytes(info.id().data());
  ns.info = std::move(info);
  by_id_[ns.id] = index;
  return index;
}

absl::Status NamespaceRegistry::Restore(const std::vector<wire::NamespaceInfo>& infos) {
  for (const wire::NamespaceInfo& saved : infos) {
    wire::NamespaceInfo info = saved;
    CISTERN_RETURN_IF_ERROR(Annotate(Complete(&info), "saved namespaces"));
    CISTERN_ASSIGN_OR_RETURN(const NamespaceIndex index, Add(std::move(info)));
    Namespace& ns = namespaces_[index.value];
    ns.info.set_conflict(false);  // shows again when a store reports it
    ns.removed = ns.info.removed();
    removed_count_ += ns.removed ? 1 : 0;
    if (ns.removed) continue;
    ns.named = true;
    by_name_[NameKey(ns.info.tenant(), ns.info.name())] = index;
  }
  return absl::OkStatus();
}

absl::StatusOr<NamespaceRegistry::Opened> NamespaceRegistry::Open(
    std::string_view tenant, std::string_view name, std::string_view fingerprint,
    const wire::NamespaceOptions& options) {
  wire::NamespaceInfo info;
  info.set_tenant(std::string(tenant));
  info.set_name(std::string(name));
  info.set_fingerprint(std::string(fingerprint));
  *info.mutable_options() = options;
  CISTERN_RETURN_IF_ERROR(Complete(&info));
  const NamespaceIndex holder = FindByName(tenant, name);
  if (!holder.none()) {
    const Namespace& ns = at(holder);
    if (ns.info.fingerprint() == fingerprint) return Opened{holder, false};
    return absl::FailedPreconditionError(absl::StrCat(
        "namespace \"", info.name(), "\" is open with fingerprint \"",
        PrintableFingerprint(ns.info.fingerprint()), "\", not \"",
        PrintableFingerprint(fingerprint),
        "\": use another name, or remove it first (cisternctl namespaces rm ", info.name(), ")"));
  }
  NamespaceIndex index = FindById(NamespaceId::FromBytes(info.id().data()));
  auto before = std::make_unique<Namespace::Before>();
  if (index.none()) {
    before->info = info;
    CISTERN_ASSIGN_OR_RETURN(index, Add(std::move(info)));
  } else {
    // Its name was removed; opened again it takes the new opener's options.
    before->info = std::exchange(namespaces_[index.value].info, std::move(info));
    before->removed = at(index).removed;
  }
  Namespace& ns = namespaces_[index.value];
  CISTERN_RETURN_IF_ERROR(state_.SaveNamespace(ns.info));
  ns.before = std::move(before);
  ns.named = true;
  removed_count_ -= ns.removed && removed_count_ > 0 ? 1 : 0;
  ns.removed = false;
  by_name_[NameKey(tenant, name)] = index;
  return Opened{index, true};
}

bool NamespaceRegistry::Confirm(NamespaceIndex index) {
  Namespace& ns = namespaces_[index.value];
  if (ns.named) ns.before.reset();
  return ns.named;
}

absl::Status NamespaceRegistry::Withdraw(NamespaceIndex index) {
  Namespace& ns = namespaces_[index.value];
  if (!ns.named || ns.before == nullptr) return absl::OkStatus();
  const std::unique_ptr<Namespace::Before> before = std::move(ns.before);
  ns.info = std::move(before->info);
  ns.removed = before->removed;
  ns.named = false;
  by_name_.erase(NameKey(ns.info.tenant(), ns.info.name()));
  return SaveRemoved(ns.info, /*remember=*/before->removed);
}

absl::Status NamespaceRegistry::SaveRemoved(const wire::NamespaceInfo& info, bool remember) {
  if (!remember || removed_count_ >= kMaxRemembered) {
    return state_.RemoveNamespace(NamespaceId::FromBytes(info.id().data()));
  }
  wire::NamespaceInfo removed = info;
  removed.set_conflict(false);
  removed.set_removed(true);
  ++removed_count_;
  return state_.SaveNamespace(removed);
}

absl::StatusOr<NamespaceIndex> NamespaceRegistry::Report(const wire::NamespaceInfo& reported) {
  wire::NamespaceInfo info = reported;
  CISTERN_RETURN_IF_ERROR(Complete(&info));
  info.set_conflict(false);
  info.set_removed(false);
  NamespaceIndex index = FindById(NamespaceId::FromBytes(info.id().data()));
  const bool known = !index.none();
  if (!known) {
    CISTERN_ASSIGN_OR_RETURN(index, Add(std::move(info)));
  }
  Namespace& ns = namespaces_[index.value];
  const NamespaceIndex holder = FindByName(ns.info.tenant(), ns.info.name());
  if (holder.none()) {
    // A removed name stays removed, whatever a store still holds of it.
    if (known) return index;
    CISTERN_RETURN_IF_ERROR(state_.SaveNamespace(ns.info));
    ns.named = true;
    by_name_[NameKey(ns.info.tenant(), ns.info.name())] = index;
  } else if (holder != index) {
    namespaces_[holder.value].info.set_conflict(true);
    ns.info.set_conflict(true);
  } else {
    ns.before.reset();  // there are chunks of it: a fact, whatever becomes of its opener
  }
  return index;
}

absl::StatusOr<NamespaceIndex> NamespaceRegistry::Remove(std::string_view tenant,
                                                         std::string_view name, bool remember) {
  const NamespaceIndex index = FindByName(tenant, name);
  if (index.none()) {
    return absl::NotFoundError(absl::StrCat("no namespace \"", std::string(name), "\""));
  }
  CISTERN_RETURN_IF_ERROR(SaveRemoved(at(index).info, remember));
  namespaces_[index.value].before.reset();
  namespaces_[index.value].named = false;
  namespaces_[index.value].removed = true;
  namespaces_[index.value].info.set_conflict(false);
  by_name_.erase(NameKey(tenant, name));
  return index;
}

NamespaceIndex NamespaceRegistry::FindByName(std::string_view tenant, std::string_view name) const {
  auto it = by_name_.find(NameKey(tenant, name));
  return it == by_name_.end() ? NamespaceIndex(NamespaceIndex::kNone) : it->second;
}

NamespaceIndex NamespaceRegistry::FindById(const NamespaceId& id) const {
  auto it = by_id_.find(id);
  return it == by_id_.end() ? NamespaceIndex(NamespaceIndex::kNone) : it->second;
}

void NamespaceRegistry::AddChunk(NamespaceIndex index, uint32_t length) {
  Namespace& ns = namespaces_[index.value];
  ++ns.chunk_count;
  ns.payload_bytes += length;
}

void NamespaceRegistry::RemoveChunk(NamespaceIndex index, uint32_t length) {
  Namespace& ns = namespaces_[index.value];
  --ns.chunk_count;
  ns.payload_bytes -= length;
}

}  // namespace cistern::master
