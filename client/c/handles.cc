#include "client/c/handles.h"

#include <pthread.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace cistern::c {
namespace {

constexpr int kKindShift = 56;

struct Table {
  Mutex mutex;
  uint64_t next ABSL_GUARDED_BY(mutex) = 1;
  absl::flat_hash_map<uint64_t, std::shared_ptr<void>> objects ABSL_GUARDED_BY(mutex);
};

Table& GetTable();

// Held over a fork, so that the child's copy is whole and its lock free. Nobody holds it for long.
void LockForFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { GetTable().mutex.Lock(); }
void UnlockAfterFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { GetTable().mutex.Unlock(); }

Table& GetTable() {
  static Table* const table = new Table;
  static const int registered = pthread_atfork(LockForFork, UnlockAfterFork, UnlockAfterFork);
  (void)registered;
  return *table;
}

const char* NameOf(uint64_t kind) {
  switch (static_cast<Kind>(kind)) {
    case Kind::kClient:
      return "client";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kBuffer:
      return "buffer";
    case Kind::kLookup:
      return "lookup";
    case Kind::kOp:
      return "op";
    case Kind::kKeyPage:
      return "key page";
  }
  return nullptr;
}

absl::Status NotLiving(Kind kind, uint64_t handle) {
  const char* const wanted = NameOf(static_cast<uint64_t>(kind));
  if (handle == 0) return absl::InvalidArgumentError(absl::StrCat("no ", wanted, ": it is 0"));
  const char* const is = NameOf(handle >> kKindShift);
  if (is != nullptr && handle >> kKindShift != static_cast<uint64_t>(kind)) {
    return absl::InvalidArgumentError(absl::StrCat("not a ", wanted, " but a ", is));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no such ", wanted, ": it was freed, or never was"));
}

}  // namespace

uint64_t AddHandle(Kind kind, std::shared_ptr<void> object) {
  Table& table = GetTable();
  MutexLock lock(table.mutex);
  const uint64_t handle = static_cast<uint64_t>(kind) << kKindShift | table.next++;
  table.objects.emplace(handle, std::move(object));
  return handle;
}

absl::StatusOr<std::shared_ptr<void>> FindHandle(Kind kind, uint64_t handle) {
  if (handle >> kKindShift == static_cast<uint64_t>(kind)) {
    Table& table = GetTable();
    MutexLock lock(table.mutex);
    const auto found = table.objects.find(handle);
    if (found != table.objects.end()) return found->second;
  }
  return NotLiving(kind, handle);
}

absl::StatusOr<std::shared_ptr<void>> TakeHandle(Kind kind, uint64_t handle) {
  if (handle == 0) return std::shared_ptr<void>();
  if (handle >> kKindShift == static_cast<uint64_t>(kind)) {
    Table& table = GetTable();
    MutexLock lock(table.mutex);
    const auto found = table.objects.find(handle);
    if (found != table.objects.end()) {
      std::shared_ptr<void> object = std::move(found->second);
      table.objects.erase(found);
      return object;
    }
  }
  return NotLiving(kind, handle);
}

}  // namespace cistern::c
