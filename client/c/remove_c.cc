// cistern.h: removing and listing.
#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/c/batches.h"
#include "client/c/call.h"
#include "client/c/objects.h"
#include "client/c/options.h"
#include "client/c/structs.h"

namespace cistern::c {
namespace {

absl::StatusOr<RemoveOptions> ReadOptions(const cistern_remove_options* options) {
  cistern_remove_options c;
  CISTERN_RETURN_IF_ERROR(ReadStruct(options, &c, "options"));
  CISTERN_RETURN_IF_ERROR(CheckFlags(c.flags, CISTERN_REMOVE_FORCE, "options.flags"));
  RemoveOptions out;
  SetCallOptions(c, &out);
  out.shard_first = c.shard_first;
  out.shard_count = ShardCount(c.shard_count);
  out.force = (c.flags & CISTERN_REMOVE_FORCE) != 0;
  return out;
}

absl::StatusOr<std::string_view> Pattern(const void* pattern, size_t bytes) {
  if (bytes > 0) CISTERN_RETURN_IF_ERROR(NotNull(pattern, "pattern"));
  return std::string_view(static_cast<const char*>(pattern), bytes);
}

}  // namespace
}  // namespace cistern::c

using cistern::c::Call;
using cistern::c::CheckOut;
using cistern::c::Find;
using cistern::c::KeyPageObject;
using cistern::c::NamespaceObject;

cistern_code cistern_remove(cistern_namespace ns, const cistern_id* ids, size_t count,
                            const cistern_remove_options* options, cistern_chunk_result* results) {
  size_t chunks = 0;
  bool answered = false;
  const cistern_code code = Call([&]() -> cistern_code {
    const auto remove = cistern::c::ReadOptions(options);
    if (!remove.ok()) return cistern::c::Report(remove.status());
    absl::Status status = cistern::c::CheckBatch(ids, count, "ids");
    if (status.ok()) {
      chunks = count * remove->shard_count;
      status = cistern::c::CheckBatch(results, chunks, "results");
    }
    const auto object = Find<NamespaceObject>(ns.value);
    status.Update(object.status());
    if (!status.ok()) return cistern::c::Report(status);
    const cistern::BatchResult result =
        (*object)->ns->Remove({cistern::c::AsIds(ids), count}, *remove);
    answered = true;
    return cistern::c::AnswerBatch(result, chunks, results);
  });
  if (!answered) cistern::c::FillResults(code, chunks, results);
  return code;
}

cistern_code cistern_remove_all(cistern_namespace ns, const cistern_remove_options* options,
                                uint64_t* removed) {
  return Call([&]() -> absl::Status {
    CISTERN_ASSIGN_OR_RETURN(const cistern::RemoveOptions remove, cistern::c::ReadOptions(options));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(const uint64_t count, object->ns->RemoveAll(remove));
    if (removed != nullptr) *removed = count;
    return absl::OkStatus();
  });
}

cistern_code cistern_remove_matching(cistern_namespace ns, const void* pattern,
                                     size_t pattern_bytes, const cistern_remove_options* options,
                                     cistern_match_removal* removal) {
  return Call([&]() -> absl::Status {
    if (removal != nullptr) CISTERN_RETURN_IF_ERROR(CheckOut(removal, "removal"));
    CISTERN_ASSIGN_OR_RETURN(const std::string_view text,
                             cistern::c::Pattern(pattern, pattern_bytes));
    CISTERN_ASSIGN_OR_RETURN(const cistern::RemoveOptions remove, cistern::c::ReadOptions(options));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::MatchRemoval sum,
                             object->ns->RemoveMatching(text, remove));
    if (removal == nullptr) return absl::OkStatus();
    cistern_match_removal out = {};
    out.unreachable_stores = static_cast<uint32_t>(sum.unreachable.size());
    out.matched = sum.matched;
    out.removed = sum.removed;
    out.refused = sum.refused;
    out.failed = sum.failed;
    cistern::c::WriteStruct(removal, out);
    return absl::OkStatus();
  });
}

cistern_code cistern_list_keys(cistern_namespace ns, const void* pattern, size_t pattern_bytes,
                               const cistern_list_options* options, cistern_key_page* page) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(cistern::c::NotNull(page, "page"));
    CISTERN_ASSIGN_OR_RETURN(const std::string_view text,
                             cistern::c::Pattern(pattern, pattern_bytes));
    cistern_list_options c;
    CISTERN_RETURN_IF_ERROR(cistern::c::ReadStruct(options, &c, "options"));
    if (c.cursor_bytes > 0) {
      CISTERN_RETURN_IF_ERROR(cistern::c::NotNull(c.cursor, "options.cursor"));
    }
    if (c.cursor_bytes > 65536) return absl::InvalidArgumentError("options.cursor: no cursor");
    cistern::ListOptions list;
    cistern::c::SetCallOptions(c, &list);
    if (c.cursor_bytes > 0) list.cursor.assign(static_cast<const char*>(c.cursor), c.cursor_bytes);
    if (c.max_keys != 0) list.max_keys = c.max_keys;
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    auto found = std::make_shared<KeyPageObject>();
    CISTERN_ASSIGN_OR_RETURN(found->page, object->ns->ListKeys(text, list));
    page->value = cistern::c::Add(std::move(found));
    return absl::OkStatus();
  });
}

cistern_code cistern_key_page_get_info(cistern_key_page page, cistern_key_page_info* info) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(CheckOut(info, "info"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<KeyPageObject>(page.value));
    cistern_key_page_info out = {};
    out.unreachable_stores = static_cast<uint32_t>(object->page.unreachable.size());
    out.key_count = object->page.keys.size();
    out.cursor_bytes = object->page.next.size();
    cistern::c::WriteStruct(info, out);
    return absl::OkStatus();
  });
}

cistern_code cistern_key_page_key(cistern_key_page page, size_t index, cistern_listed_key* key) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(CheckOut(key, "key"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<KeyPageObject>(page.value));
    if (index >= object->page.keys.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no key ", index, ": the page has ", object->page.keys.size()));
    }
    const cistern::ListedKey& from = object->page.keys[index];
    cistern_listed_key out = {};
    out.shard = from.shard;
    out.id = cistern::c::ToC(from.id);
    out.key = from.key.data();
    out.key_bytes = from.key.size();
    out.bytes = from.length;
    cistern::c::WriteStruct(key, out);
    return absl::OkStatus();
  });
}

cistern_code cistern_key_page_next(cistern_key_page page, void* cursor, size_t capacity) {
  return Call([&]() -> absl::Status {
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<KeyPageObject>(page.value));
    const std::string& next = object->page.next;
    if (capacity < next.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a cursor of ", next.size(), " bytes, and room for ", capacity));
    }
    if (next.empty()) return absl::OkStatus();
    CISTERN_RETURN_IF_ERROR(cistern::c::NotNull(cursor, "cursor"));
    std::memcpy(cursor, next.data(), next.size());
    return absl::OkStatus();
  });
}

cistern_code cistern_key_page_free(cistern_key_page page) {
  return Call(
      [&]() -> absl::Status { return cistern::c::Take<KeyPageObject>(page.value).status(); });
}
