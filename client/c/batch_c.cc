// cistern.h: put and get.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/c/batches.h"
#include "client/c/call.h"
#include "client/c/objects.h"
#include "client/c/options.h"
#include "client/c/structs.h"

namespace cistern::c {
namespace {

constexpr uint64_t kMaxSpans = 4096;

// Reads all items and says how many spans they have.
template <typename Item>
absl::StatusOr<size_t> ReadItems(const Item* items, size_t count, std::vector<Item>* out) {
  out->resize(count);
  if (count == 0) return 0;
  const uint32_t stride = items->struct_size;
  CISTERN_RETURN_IF_ERROR(CheckStructSize(stride, kFirstSize<Item>, "items[0]"));
  size_t spans = 0;
  for (size_t i = 0; i < count; ++i) {
    Item& item = (*out)[i];
    CISTERN_RETURN_IF_ERROR(ReadElement(items, i, stride, &item, "items"));
    if (item.span_count > kMaxSpans) {
      return absl::InvalidArgumentError(
          absl::StrCat("items[", i, "] has ", item.span_count, " spans: ", kMaxSpans, " at most"));
    }
    if (item.span_count > 0 && item.spans == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("items[", i, "].spans is NULL"));
    }
    spans += item.span_count;
  }
  return spans;
}

// Appends an item's spans to `spans`, whose room was reserved.
template <typename Item>
Memory CopyMemory(const Item& item, std::vector<Span>* spans) {
  const size_t first = spans->size();
  for (uint64_t s = 0; s < item.span_count; ++s) {
    spans->push_back({item.spans[s].data, item.spans[s].bytes});
  }
  Memory memory;
  memory.spans = {spans->data() + first, static_cast<size_t>(item.span_count)};
  memory.layout = {item.layout};
  memory.unit = item.unit;
  return memory;
}

}  // namespace

absl::StatusOr<PutOptions> FromC(const cistern_put_options* options) {
  cistern_put_options c;
  CISTERN_RETURN_IF_ERROR(ReadStruct(options, &c, "options"));
  CISTERN_RETURN_IF_ERROR(
      CheckFlags(c.flags, CISTERN_PUT_REPLACE | CISTERN_PUT_WAIT_VISIBLE, "options.flags"));
  PutOptions out;
  SetCallOptions(c, &out);
  out.part_bytes = c.part_bytes;
  if (c.expiry_unix_us != 0) {
    out.expiry =
        absl::FromUnixMicros(static_cast<int64_t>(std::min<uint64_t>(c.expiry_unix_us, INT64_MAX)));
  }
  out.affinity = c.affinity;
  out.wait_visible = (c.flags & CISTERN_PUT_WAIT_VISIBLE) != 0;
  out.replace = (c.flags & CISTERN_PUT_REPLACE) != 0;
  return out;
}

absl::StatusOr<GetOptions> FromC(const cistern_get_options* options) {
  cistern_get_options c;
  CISTERN_RETURN_IF_ERROR(ReadStruct(options, &c, "options"));
  if (c.order > CISTERN_ORDER_BY_PART) {
    return absl::InvalidArgumentError("options.order: no such order");
  }
  GetOptions out;
  SetCallOptions(c, &out);
  out.order = static_cast<GetOrder>(c.order);
  return out;
}

absl::StatusOr<Batch<PutItem>> FromC(const cistern_put_item* items, size_t count, bool own_keys) {
  CISTERN_RETURN_IF_ERROR(CheckBatch(items, count, "items"));
  std::vector<cistern_put_item> read;
  CISTERN_ASSIGN_OR_RETURN(const size_t spans, ReadItems(items, count, &read));
  size_t key_bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    if (read[i].key == nullptr && read[i].key_bytes > 0) {
      return absl::InvalidArgumentError(absl::StrCat("items[", i, "].key is NULL"));
    }
    if (read[i].key_bytes > kMaxKeyBytes) {
      return absl::InvalidArgumentError(absl::StrCat("items[", i, "]: a key has ", kMaxKeyBytes,
                                                     " bytes at most, not ", read[i].key_bytes));
    }
    key_bytes += read[i].key_bytes;
  }
  Batch<PutItem> out;
  out.items.reserve(count);
  out.spans.reserve(spans);
  if (own_keys) out.keys.reserve(key_bytes);
  for (const cistern_put_item& item : read) {
    PutItem to;
    to.id = KeyId::FromBytes(item.id.bytes);
    to.shard = item.shard;
    to.memory = CopyMemory(item, &out.spans);
    to.key = {static_cast<const char*>(item.key), static_cast<size_t>(item.key_bytes)};
    if (own_keys && item.key_bytes > 0) {
      const size_t at = out.keys.size();
      out.keys.append(to.key);
      to.key = std::string_view(out.keys).substr(at);
    }
    out.items.push_back(to);
  }
  return out;
}

absl::StatusOr<Batch<GetItem>> FromC(const cistern_get_item* items, size_t count) {
  CISTERN_RETURN_IF_ERROR(CheckBatch(items, count, "items"));
  std::vector<cistern_get_item> read;
  CISTERN_ASSIGN_OR_RETURN(const size_t spans, ReadItems(items, count, &read));
  Batch<GetItem> out;
  out.items.reserve(count);
  out.spans.reserve(spans);
  for (const cistern_get_item& item : read) {
    CISTERN_RETURN_IF_ERROR(CheckFlags(item.flags, CISTERN_GET_ANY_LENGTH, "item.flags"));
    GetItem to;
    to.id = KeyId::FromBytes(item.id.bytes);
    to.shard = item.shard;
    to.memory = CopyMemory(item, &out.spans);
    to.range_offset = item.range_offset;
    to.range_bytes = item.range_bytes;
    to.first_part = item.first_part;
    to.part_count = item.part_count;
    to.any_length = (item.flags & CISTERN_GET_ANY_LENGTH) != 0;
    out.items.push_back(to);
  }
  return out;
}

void FillResults(cistern_code code, size_t count, cistern_chunk_result* results) {
  if (results != nullptr && count <= CISTERN_MAX_BATCH) {
    std::fill_n(results, count, cistern_chunk_result{code, 0, 0});
  }
}

cistern_code AnswerBatch(const BatchResult& result, size_t count, cistern_chunk_result* results) {
  const cistern_code code = CodeOf(result.status);
  if (result.items.size() != count) {
    FillResults(result.status.ok() ? CISTERN_INTERNAL : code, count, results);
    return Report(result.status.ok() ? absl::InternalError("results do not fit the batch")
                                     : result.status);
  }
  for (size_t i = 0; i < count; ++i) {
    const ChunkResult& item = result.items[i];
    results[i] = {static_cast<cistern_code>(item.code),
                  item.verified ? CISTERN_RESULT_VERIFIED : 0u, item.length};
  }
  if (!result.message.empty()) {
    SetMessage(result.message);
  } else {
    Report(result.status);
  }
  return code;
}

namespace {

// Every entry gets the code of a call that could not be tried.
template <typename Body>
cistern_code CallBatch(size_t count, cistern_chunk_result* results, Body&& body) {
  bool answered = false;
  const cistern_code code = Call([&]() -> cistern_code {
    const absl::Status room = CheckBatch(results, count, "results");
    if (!room.ok()) return Report(room);
    const absl::StatusOr<BatchResult> result = body();
    if (!result.ok()) return Report(result.status());
    answered = true;
    return AnswerBatch(*result, count, results);
  });
  if (!answered) FillResults(code, count, results);
  return code;
}

}  // namespace
}  // namespace cistern::c

using cistern::BatchResult;
using cistern::c::Find;
using cistern::c::NamespaceObject;

cistern_code cistern_put(cistern_namespace ns, const cistern_put_item* items, size_t count,
                         const cistern_put_options* options, cistern_chunk_result* results) {
  return cistern::c::CallBatch(count, results, [&]() -> absl::StatusOr<BatchResult> {
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::PutOptions put, cistern::c::FromC(options));
    CISTERN_ASSIGN_OR_RETURN(const auto batch, cistern::c::FromC(items, count, /*own_keys=*/false));
    return object->ns->BatchPut(batch.items, put);
  });
}

cistern_code cistern_get(cistern_namespace ns, const cistern_get_item* items, size_t count,
                         const cistern_get_options* options, cistern_chunk_result* results) {
  return cistern::c::CallBatch(count, results, [&]() -> absl::StatusOr<BatchResult> {
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::GetOptions get, cistern::c::FromC(options));
    CISTERN_ASSIGN_OR_RETURN(const auto batch, cistern::c::FromC(items, count));
    return object->ns->BatchGet(batch.items, get);
  });
}
