#include "store/namespace_record.h"

#include <atomic>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/key_hash.h"
#include "base/status.h"

namespace cistern::store {
namespace {

constexpr size_t kCrcBegin = offsetof(NamespaceSlot, id);

uint32_t SlotCrc(const NamespaceSlot& slot) {
  return Crc32c(reinterpret_cast<const char*>(&slot) + kCrcBegin, sizeof(slot) - kCrcBegin);
}

void StoreMagic(NamespaceSlot* slot, uint32_t magic) {
  std::atomic_ref<uint32_t>(slot->magic).store(magic, std::memory_order_release);
}

std::string_view Bytes(const uint8_t* p, size_t n) { return {reinterpret_cast<const char*>(p), n}; }

}  // namespace

absl::Status CheckNamespaceRecord(const NamespaceRecord& record) {
  if (record.name.empty() || record.name.size() > kMaxNamespaceNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a namespace's name has 1 to ",
                                                   kMaxNamespaceNameBytes, " bytes, not ",
                                                   record.name.size()));
  }
  if (record.tenant.size() > kMaxTenantBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tenant's name has at most ", kMaxTenantBytes, " bytes"));
  }
  if (record.fingerprint.size() > kMaxFingerprintBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a namespace's fingerprint has at most ",
                                                   kMaxFingerprintBytes, " bytes, not ",
                                                   record.fingerprint.size()));
  }
  const wire::NamespaceOptions& options = record.options;
  if (!wire::VerifyPolicy_IsValid(options.verify()) ||
      !wire::DigestKind_IsValid(options.digest())) {
    // In a slot they would be cut to a byte, and a restart would find the slot damaged.
    return absl::InvalidArgumentError("namespace options with values this version does not know");
  }
  if (const uint32_t part = options.part_bytes();
      part != 0 && (part < kMinPartBytes || (part & (part - 1)) != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("part_bytes ", part, " is no power of two of ", kMinPartBytes, " or more"));
  }
  if (record.id != DeriveNamespaceId(record.tenant, record.name, record.fingerprint)) {
    return absl::InvalidArgumentError(
        "the namespace id is not the one derived from tenant, name and fingerprint");
  }
  return absl::OkStatus();
}

void ToNamespaceInfo(const NamespaceRecord& record, wire::NamespaceInfo* out) {
  out->set_id(record.id.bytes.data(), record.id.bytes.size());
  out->set_tenant(record.tenant);
  out->set_name(record.name);
  out->set_fingerprint(record.fingerprint);
  *out->mutable_options() = record.options;
}

void WriteNamespaceSlot(const NamespaceRecord& record, NamespaceSlot* slot) {
  CISTERN_CHECK(record.tenant.size() <= kMaxTenantBytes &&
                record.name.size() <= kMaxNamespaceNameBytes &&
                record.fingerprint.size() <= kMaxFingerprintBytes);
  NamespaceSlot image{};
  std::memcpy(image.id, record.id.bytes.data(), sizeof(image.id));
  image.valid_from = record.valid_from.value;
  image.ttl_ms = record.options.ttl_ms();
  image.part_bytes = record.options.part_bytes();
  image.verify = static_cast<uint8_t>(record.options.verify());
  image.digest = static_cast<uint8_t>(record.options.digest());
  image.flags = static_cast<uint8_t>((record.options.digest_set() ? kNamespaceFlagDigestSet : 0) |
                                     (record.options.mutable_chunks() ? kNamespaceFlagMutable : 0) |
                                     (record.options.keep_keys() ? kNamespaceFlagKeepKeys : 0));
  image.tenant_length = static_cast<uint16_t>(record.tenant.size());
  image.name_length = static_cast<uint16_t>(record.name.size());
  image.fingerprint_length = static_cast<uint16_t>(record.fingerprint.size());
  std::memcpy(image.tenant, record.tenant.data(), record.tenant.size());
  std::memcpy(image.name, record.name.data(), record.name.size());
  std::memcpy(image.fingerprint, record.fingerprint.data(), record.fingerprint.size());
  image.crc32c = SlotCrc(image);

  StoreMagic(slot, 0);
  OrderStores();
  constexpr size_t kBody = offsetof(NamespaceSlot, crc32c);
  std::memcpy(reinterpret_cast<char*>(slot) + kBody, reinterpret_cast<const char*>(&image) + kBody,
              sizeof(image) - kBody);
  OrderStores();
  StoreMagic(slot, kNamespaceSlotMagic);
}

void ClearNamespaceSlot(NamespaceSlot* slot) { StoreMagic(slot, 0); }

std::optional<NamespaceRecord> ReadNamespaceSlot(const NamespaceSlot& slot, bool* damaged) {
  if (damaged != nullptr) *damaged = slot.magic != 0;
  if (slot.magic != kNamespaceSlotMagic || slot.crc32c != SlotCrc(slot) ||
      slot.tenant_length > kMaxTenantBytes || slot.name_length > kMaxNamespaceNameBytes ||
      slot.fingerprint_length > kMaxFingerprintBytes || !wire::VerifyPolicy_IsValid(slot.verify) ||
      !wire::DigestKind_IsValid(slot.digest)) {
    return std::nullopt;
  }
  NamespaceRecord record;
  record.id = NamespaceId::FromBytes(slot.id);
  record.tenant = Bytes(slot.tenant, slot.tenant_length);
  record.name = Bytes(slot.name, slot.name_length);
  record.fingerprint = Bytes(slot.fingerprint, slot.fingerprint_length);
  record.valid_from = Version(slot.valid_from);
  record.options.set_ttl_ms(slot.ttl_ms);
  record.options.set_part_bytes(slot.part_bytes);
  record.options.set_verify(static_cast<wire::VerifyPolicy>(slot.verify));
  record.options.set_digest(static_cast<wire::DigestKind>(slot.digest));
  record.options.set_digest_set((slot.flags & kNamespaceFlagDigestSet) != 0);
  record.options.set_mutable_chunks((slot.flags & kNamespaceFlagMutable) != 0);
  record.options.set_keep_keys((slot.flags & kNamespaceFlagKeepKeys) != 0);
  if (!CheckNamespaceRecord(record).ok()) return std::nullopt;
  if (damaged != nullptr) *damaged = false;
  return record;
}

}  // namespace cistern::store
