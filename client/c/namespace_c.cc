// cistern.h: namespaces and keys.
#include <limits>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/c/call.h"
#include "client/c/objects.h"
#include "client/c/options.h"
#include "client/c/structs.h"

namespace cistern::c {
namespace {

constexpr uint32_t kNamespaceFlags =
    CISTERN_NAMESPACE_NO_DIGEST | CISTERN_NAMESPACE_MUTABLE | CISTERN_NAMESPACE_KEEP_KEYS;

absl::StatusOr<NamespaceOptions> FromC(const cistern_namespace_options* options) {
  cistern_namespace_options c;
  CISTERN_RETURN_IF_ERROR(ReadStruct(options, &c, "options"));
  CISTERN_RETURN_IF_ERROR(CheckFlags(c.flags, kNamespaceFlags, "options.flags"));
  if (c.verify > CISTERN_VERIFY_OFF) return absl::InvalidArgumentError("options.verify: no such");
  NamespaceOptions out;
  out.verify = static_cast<Verify>(c.verify);
  out.ttl = FromMicros(c.ttl_us);
  out.part_bytes = c.part_bytes;
  out.digest = (c.flags & CISTERN_NAMESPACE_NO_DIGEST) == 0;
  out.mutable_chunks = (c.flags & CISTERN_NAMESPACE_MUTABLE) != 0;
  out.keep_keys = (c.flags & CISTERN_NAMESPACE_KEEP_KEYS) != 0;
  return out;
}

cistern_namespace_info InfoOf(const Namespace& ns) {
  const NamespaceOptions& options = ns.options();
  cistern_namespace_info out = {};
  out.flags = (options.digest ? 0 : CISTERN_NAMESPACE_NO_DIGEST) |
              (options.mutable_chunks ? CISTERN_NAMESPACE_MUTABLE : 0) |
              (options.keep_keys ? CISTERN_NAMESPACE_KEEP_KEYS : 0);
  out.id = ToC(ns.id());
  out.verify = static_cast<uint32_t>(options.verify);
  out.ttl_us = ToMicros(options.ttl);
  out.part_bytes = options.part_bytes;
  return out;
}

}  // namespace
}  // namespace cistern::c

using cistern::c::Call;
using cistern::c::CheckBatch;
using cistern::c::ClientObject;
using cistern::c::Find;
using cistern::c::NamespaceObject;
using cistern::c::NotNull;

cistern_code cistern_open_namespace(cistern_client client, const char* name,
                                    const char* fingerprint,
                                    const cistern_namespace_options* options,
                                    const cistern_call_options* call, cistern_namespace* ns) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(name, "name"));
    CISTERN_RETURN_IF_ERROR(NotNull(fingerprint, "fingerprint"));
    CISTERN_RETURN_IF_ERROR(NotNull(ns, "ns"));
    CISTERN_ASSIGN_OR_RETURN(const cistern::NamespaceOptions converted, cistern::c::FromC(options));
    cistern_call_options c;
    CISTERN_RETURN_IF_ERROR(cistern::c::ReadStruct(call, &c, "call"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<ClientObject>(client.value));
    CISTERN_ASSIGN_OR_RETURN(const auto use, object->Enter());
    auto opened = std::make_shared<NamespaceObject>();
    CISTERN_ASSIGN_OR_RETURN(
        opened->ns, use->OpenNamespace(name, fingerprint, converted, cistern::c::ToCallOptions(c)));
    ns->value = cistern::c::Add(std::move(opened));
    return absl::OkStatus();
  });
}

cistern_code cistern_namespace_free(cistern_namespace ns) {
  return Call(
      [&]() -> absl::Status { return cistern::c::Take<NamespaceObject>(ns.value).status(); });
}

cistern_code cistern_namespace_get_info(cistern_namespace ns, cistern_namespace_info* info) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(cistern::c::CheckOut(info, "info"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    cistern::c::WriteStruct(info, cistern::c::InfoOf(*object->ns));
    return absl::OkStatus();
  });
}

cistern_code cistern_hash(cistern_namespace ns, const void* keys, const uint64_t* key_bytes,
                          size_t count, cistern_id* ids) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(CheckBatch(keys, count, "keys"));
    CISTERN_RETURN_IF_ERROR(CheckBatch(key_bytes, count, "key_bytes"));
    CISTERN_RETURN_IF_ERROR(CheckBatch(ids, count, "ids"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    std::vector<std::string_view> views(count);
    const char* at = static_cast<const char*>(keys);
    for (size_t i = 0; i < count; ++i) {
      // Before the next one is looked at: a wild length leads nowhere.
      if (key_bytes[i] == 0 || key_bytes[i] > cistern::kMaxKeyBytes) {
        return absl::InvalidArgumentError(absl::StrCat(
            "key ", i, ": a key has 1 to ", cistern::kMaxKeyBytes, " bytes, not ", key_bytes[i]));
      }
      views[i] = {at, static_cast<size_t>(key_bytes[i])};
      at += key_bytes[i];
    }
    std::vector<cistern::KeyId> hashed;
    CISTERN_RETURN_IF_ERROR(object->ns->HashMany(views, &hashed));
    for (size_t i = 0; i < count; ++i) ids[i] = cistern::c::ToC(hashed[i]);
    return absl::OkStatus();
  });
}
