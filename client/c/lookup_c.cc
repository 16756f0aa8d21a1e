// cistern.h: lookups, leases, tickets.
#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/c/call.h"
#include "client/c/lookups.h"
#include "client/c/objects.h"
#include "client/c/options.h"
#include "client/c/structs.h"

namespace cistern::c {
namespace {

cistern_lookup_info InfoOf(const LookupResult& result) {
  cistern_lookup_info out = {};
  out.flags = result.lease_shortened ? CISTERN_LEASE_SHORTENED : 0;
  out.key_count = result.present.size();
  out.leading_run = result.leading_run;
  out.present_count =
      static_cast<uint64_t>(std::count(result.present.begin(), result.present.end(), true));
  out.lease_count = result.leases.size();
  out.lease_us = ToMicros(result.lease_time);
  return out;
}

void WritePresent(const std::vector<bool>& present, uint8_t* out) {
  for (size_t i = 0; i < present.size(); ++i) out[i] = present[i] ? CISTERN_KEY_PRESENT : 0;
}

}  // namespace

absl::StatusOr<LookupOptions> FromC(const cistern_lookup_options* options) {
  cistern_lookup_options c;
  CISTERN_RETURN_IF_ERROR(ReadStruct(options, &c, "options"));
  CISTERN_RETURN_IF_ERROR(
      CheckFlags(c.flags, CISTERN_LOOKUP_SPARSE | CISTERN_LOOKUP_NO_LEASE, "options.flags"));
  LookupOptions out;
  SetCallOptions(c, &out);
  out.shard_first = c.shard_first;
  out.shard_count = ShardCount(c.shard_count);
  out.sparse = (c.flags & CISTERN_LOOKUP_SPARSE) != 0;
  out.lease = (c.flags & CISTERN_LOOKUP_NO_LEASE) == 0;
  out.lease_time = FromMicros(c.lease_us);
  return out;
}

absl::Status AnswerLookup(const std::shared_ptr<Namespace>& ns, LookupResult result,
                          cistern_lookup_info* info, uint8_t* present, cistern_lookup* lookup) {
  if (info != nullptr) CISTERN_RETURN_IF_ERROR(CheckOut(info, "info"));
  const cistern_lookup_info found = InfoOf(result);
  if (present != nullptr) WritePresent(result.present, present);
  if (lookup != nullptr) {
    auto object = std::make_shared<LookupObject>();
    object->ns = ns;
    object->result = std::move(result);
    lookup->value = Add(std::move(object));
  }
  if (info != nullptr) WriteStruct(info, found);
  return absl::OkStatus();
}

}  // namespace cistern::c

using cistern::c::Call;
using cistern::c::CheckBatch;
using cistern::c::Find;
using cistern::c::LookupObject;
using cistern::c::NamespaceObject;
using cistern::c::NotNull;

cistern_code cistern_lookup_keys(cistern_namespace ns, const cistern_id* ids, size_t count,
                                 const cistern_lookup_options* options, cistern_lookup_info* info,
                                 uint8_t* present, cistern_lookup* lookup) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(CheckBatch(ids, count, "ids"));
    if (info != nullptr) CISTERN_RETURN_IF_ERROR(cistern::c::CheckOut(info, "info"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::LookupOptions converted, cistern::c::FromC(options));
    CISTERN_ASSIGN_OR_RETURN(cistern::LookupResult result,
                             object->ns->Lookup({cistern::c::AsIds(ids), count}, converted));
    return cistern::c::AnswerLookup(object->ns, std::move(result), info, present, lookup);
  });
}

cistern_code cistern_exists(cistern_namespace ns, const cistern_id* ids, size_t count,
                            const cistern_lookup_options* options, uint8_t* present) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(CheckBatch(ids, count, "ids"));
    CISTERN_RETURN_IF_ERROR(CheckBatch(present, count, "present"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::LookupOptions converted, cistern::c::FromC(options));
    CISTERN_ASSIGN_OR_RETURN(const std::vector<bool> found,
                             object->ns->Exists({cistern::c::AsIds(ids), count}, converted));
    for (size_t i = 0; i < found.size(); ++i) present[i] = found[i] ? CISTERN_KEY_PRESENT : 0;
    return absl::OkStatus();
  });
}

cistern_code cistern_prefetch(cistern_namespace ns, const cistern_id* ids, size_t count,
                              const cistern_lookup_options* options) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(CheckBatch(ids, count, "ids"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::LookupOptions converted, cistern::c::FromC(options));
    return object->ns->Prefetch({cistern::c::AsIds(ids), count}, converted);
  });
}

cistern_code cistern_lookup_get_info(cistern_lookup lookup, cistern_lookup_info* info) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(cistern::c::CheckOut(info, "info"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<LookupObject>(lookup.value));
    cistern::c::WriteStruct(info, cistern::c::InfoOf(object->result));
    return absl::OkStatus();
  });
}

cistern_code cistern_lookup_present(cistern_lookup lookup, uint8_t* present, size_t capacity) {
  return Call([&]() -> absl::Status {
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<LookupObject>(lookup.value));
    const size_t count = object->result.present.size();
    CISTERN_RETURN_IF_ERROR(CheckBatch(present, count, "present"));
    if (capacity < count) {
      return absl::InvalidArgumentError(absl::StrCat("room for ", capacity, " of ", count));
    }
    cistern::c::WritePresent(object->result.present, present);
    return absl::OkStatus();
  });
}

cistern_code cistern_lookup_ids(cistern_lookup lookup, cistern_id* ids, size_t capacity) {
  return Call([&]() -> absl::Status {
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<LookupObject>(lookup.value));
    const std::vector<cistern::KeyId>& from = object->result.ids;
    CISTERN_RETURN_IF_ERROR(CheckBatch(ids, from.size(), "ids"));
    if (capacity < from.size()) {
      return absl::InvalidArgumentError(absl::StrCat("room for ", capacity, " of ", from.size()));
    }
    for (size_t i = 0; i < from.size(); ++i) ids[i] = cistern::c::ToC(from[i]);
    return absl::OkStatus();
  });
}

cistern_code cistern_lookup_ticket(cistern_lookup lookup, void* out, size_t capacity,
                                   size_t* bytes) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(bytes, "bytes"));
    if (out == nullptr && capacity > 0) return NotNull(out, "out");
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<LookupObject>(lookup.value));
    const std::string ticket = object->result.Serialize();
    *bytes = ticket.size();
    if (capacity < ticket.size()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a ticket of ", ticket.size(), " bytes, and room for ", capacity));
    }
    std::memcpy(out, ticket.data(), ticket.size());
    return absl::OkStatus();
  });
}

cistern_code cistern_adopt(cistern_namespace ns, const void* ticket, size_t bytes,
                           cistern_lookup_info* info, cistern_lookup* lookup) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(ticket, "ticket"));
    CISTERN_RETURN_IF_ERROR(NotNull(lookup, "lookup"));
    if (info != nullptr) CISTERN_RETURN_IF_ERROR(cistern::c::CheckOut(info, "info"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(
        cistern::LookupResult result,
        object->ns->Adopt(std::string_view(static_cast<const char*>(ticket), bytes)));
    return cistern::c::AnswerLookup(object->ns, std::move(result), info, nullptr, lookup);
  });
}

cistern_code cistern_release(cistern_lookup lookup, const cistern_call_options* options) {
  return Call([&]() -> absl::Status {
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<LookupObject>(lookup.value));
    cistern_call_options call;
    CISTERN_RETURN_IF_ERROR(cistern::c::ReadStruct(options, &call, "options"));
    return object->ns->Release(object->result.leases, cistern::c::ToCallOptions(call));
  });
}

cistern_code cistern_lookup_free(cistern_lookup lookup) {
  return Call(
      [&]() -> absl::Status { return cistern::c::Take<LookupObject>(lookup.value).status(); });
}
