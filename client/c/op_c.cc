// cistern.h: asynchronous calls.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/c/batches.h"
#include "client/c/call.h"
#include "client/c/lookups.h"
#include "client/c/objects.h"
#include "client/c/structs.h"

namespace cistern::c {
namespace {

// The op's parts of a get, or InvalidArgument.
absl::StatusOr<const PendingGet*> GetOf(const OpObject& op) {
  const auto* const get = std::get_if<PendingGet>(&op.pending);
  if (get == nullptr) return absl::InvalidArgumentError("the op is no get");
  return get;
}

absl::Status TakeOnce(OpObject* op) {
  if (!op->taken.exchange(true)) return absl::OkStatus();
  return absl::FailedPreconditionError("the op's result was taken before");
}

absl::Status CheckFd(int fd, int* out) {
  if (fd < 0) return absl::ResourceExhaustedError("no descriptor: the system has no more");
  *out = fd;
  return absl::OkStatus();
}

}  // namespace
}  // namespace cistern::c

using cistern::c::Call;
using cistern::c::CheckBatch;
using cistern::c::Find;
using cistern::c::NamespaceObject;
using cistern::c::NotNull;
using cistern::c::OpObject;
using LookupPending = cistern::Pending<absl::StatusOr<cistern::LookupResult>>;
using PutPending = cistern::Pending<cistern::BatchResult>;

cistern_code cistern_lookup_async(cistern_namespace ns, const cistern_id* ids, size_t count,
                                  const cistern_lookup_options* options, cistern_op* op) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(op, "op"));
    CISTERN_RETURN_IF_ERROR(CheckBatch(ids, count, "ids"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::LookupOptions lookup, cistern::c::FromC(options));
    auto made = std::make_shared<OpObject>();
    made->ns = object->ns;
    made->count = count;
    made->ids.assign(cistern::c::AsIds(ids), cistern::c::AsIds(ids) + count);
    made->pending = object->ns->LookupAsync(made->ids, lookup);
    op->value = cistern::c::Add(std::move(made));
    return absl::OkStatus();
  });
}

cistern_code cistern_put_async(cistern_namespace ns, const cistern_put_item* items, size_t count,
                               const cistern_put_options* options, cistern_op* op) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(op, "op"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::PutOptions put, cistern::c::FromC(options));
    auto made = std::make_shared<OpObject>();
    made->ns = object->ns;
    made->count = count;
    CISTERN_ASSIGN_OR_RETURN(made->put_batch, cistern::c::FromC(items, count, /*own_keys=*/true));
    made->pending = object->ns->BatchPutAsync(made->put_batch.items, put);
    op->value = cistern::c::Add(std::move(made));
    return absl::OkStatus();
  });
}

cistern_code cistern_get_async(cistern_namespace ns, const cistern_get_item* items, size_t count,
                               const cistern_get_options* options, cistern_op* op) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(op, "op"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<NamespaceObject>(ns.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::GetOptions get, cistern::c::FromC(options));
    auto made = std::make_shared<OpObject>();
    made->ns = object->ns;
    made->count = count;
    CISTERN_ASSIGN_OR_RETURN(made->get_batch, cistern::c::FromC(items, count));
    made->pending = object->ns->BatchGetAsync(made->get_batch.items, get);
    op->value = cistern::c::Add(std::move(made));
    return absl::OkStatus();
  });
}

cistern_code cistern_op_wait(cistern_op op, int64_t timeout_us) {
  return Call([&]() -> cistern_code {
    const auto object = Find<OpObject>(op.value);
    if (!object.ok()) return cistern::c::Report(object.status());
    const bool done = std::visit(
        [&](const auto& pending) {
          return pending.Done() || pending.Wait(cistern::c::FromTimeout(timeout_us));
        },
        (*object)->pending);
    return done ? CISTERN_OK : CISTERN_IN_PROGRESS;
  });
}

cistern_code cistern_op_eventfd(cistern_op op, int* fd) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(fd, "fd"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<OpObject>(op.value));
    return cistern::c::CheckFd(
        std::visit([](const auto& pending) { return pending.EventFd(); }, object->pending), fd);
  });
}

cistern_code cistern_op_cancel(cistern_op op) {
  return Call([&]() -> absl::Status {
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<OpObject>(op.value));
    std::visit([](const auto& pending) { pending.Cancel(); }, object->pending);
    return absl::OkStatus();
  });
}

cistern_code cistern_op_results(cistern_op op, cistern_chunk_result* results, size_t capacity) {
  return Call([&]() -> cistern_code {
    const auto object = Find<OpObject>(op.value);
    if (!object.ok()) return cistern::c::Report(object.status());
    OpObject& call = **object;
    absl::Status status = CheckBatch(results, call.count, "results");
    if (capacity < call.count) {
      status = absl::InvalidArgumentError(absl::StrCat("room for ", capacity, " of ", call.count));
    }
    if (std::holds_alternative<LookupPending>(call.pending)) {
      status = absl::InvalidArgumentError("the op is a lookup");
    }
    if (status.ok()) status = cistern::c::TakeOnce(&call);
    if (!status.ok()) return cistern::c::Report(status);
    auto* const get = std::get_if<cistern::PendingGet>(&call.pending);
    return cistern::c::AnswerBatch(
        get != nullptr ? get->Take() : std::get<PutPending>(call.pending).Take(), call.count,
        results);
  });
}

cistern_code cistern_op_lookup(cistern_op op, cistern_lookup_info* info, uint8_t* present,
                               size_t present_capacity, cistern_lookup* lookup) {
  return Call([&]() -> absl::Status {
    if (info != nullptr) CISTERN_RETURN_IF_ERROR(cistern::c::CheckOut(info, "info"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<OpObject>(op.value));
    auto* const pending = std::get_if<LookupPending>(&object->pending);
    if (pending == nullptr) return absl::InvalidArgumentError("the op is no lookup");
    if (present != nullptr && present_capacity < object->count) {
      return absl::InvalidArgumentError(
          absl::StrCat("room for ", present_capacity, " of ", object->count));
    }
    CISTERN_RETURN_IF_ERROR(cistern::c::TakeOnce(object.get()));
    CISTERN_ASSIGN_OR_RETURN(cistern::LookupResult result, pending->Take());
    return cistern::c::AnswerLookup(object->ns, std::move(result), info, present, lookup);
  });
}

cistern_code cistern_op_free(cistern_op op) {
  return Call([&]() -> absl::Status {
    CISTERN_ASSIGN_OR_RETURN(const auto object, cistern::c::Take<OpObject>(op.value));
    if (object == nullptr) return absl::OkStatus();
    // Here and not in the object's end: another thread's wait may hold it longer than this call.
    std::visit(
        [](const auto& pending) {
          if (pending.Done()) return;
          pending.Cancel();
          pending.Wait();
        },
        object->pending);
    return absl::OkStatus();
  });
}

cistern_code cistern_op_parts_done(cistern_op op, uint32_t* parts) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(parts, "parts"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<OpObject>(op.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::PendingGet* const get, cistern::c::GetOf(*object));
    *parts = get->PartsDone();
    return absl::OkStatus();
  });
}

cistern_code cistern_op_wait_part(cistern_op op, uint32_t part, int64_t timeout_us) {
  return Call([&]() -> cistern_code {
    const auto object = Find<OpObject>(op.value);
    if (!object.ok()) return cistern::c::Report(object.status());
    const auto get = cistern::c::GetOf(**object);
    if (!get.ok()) return cistern::c::Report(get.status());
    switch ((*get)->WaitPart(part, cistern::c::FromTimeout(timeout_us))) {
      case cistern::PartWait::kReady:
        return CISTERN_OK;
      case cistern::PartWait::kMissing:
        return CISTERN_NOT_FOUND;
      case cistern::PartWait::kTimeout:
        break;
    }
    return CISTERN_IN_PROGRESS;
  });
}

cistern_code cistern_op_missed(cistern_op op, cistern_missed_chunk* out, size_t capacity,
                               size_t* count) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(count, "count"));
    if (capacity > 0) CISTERN_RETURN_IF_ERROR(NotNull(out, "out"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<OpObject>(op.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::PendingGet* const get, cistern::c::GetOf(*object));
    const std::vector<cistern::MissedChunk> missed = get->MissedSoFar();
    *count = missed.size();
    for (size_t i = 0; i < std::min(capacity, missed.size()); ++i) {
      out[i] = {missed[i].item, static_cast<cistern_code>(missed[i].code), missed[i].parts_done, 0};
    }
    return absl::OkStatus();
  });
}

cistern_code cistern_op_part_eventfd(cistern_op op, int* fd) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(fd, "fd"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<OpObject>(op.value));
    CISTERN_ASSIGN_OR_RETURN(const cistern::PendingGet* const get, cistern::c::GetOf(*object));
    return cistern::c::CheckFd(get->PartEventFd(), fd);
  });
}
