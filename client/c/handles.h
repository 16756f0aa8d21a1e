// The handles of the C interface: numbers that stand for objects, each of one kind, never used
// twice. So a handle that was freed, or is of another kind, is found out instead of followed.
#ifndef CISTERN_CLIENT_C_HANDLES_H_
#define CISTERN_CLIENT_C_HANDLES_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace cistern::c {

// In a handle's top byte.
enum class Kind : uint8_t {
  kClient = 1,
  kNamespace = 2,
  kBuffer = 3,
  kLookup = 4,
  kOp = 5,
  kKeyPage = 6,
};

// Thread-safe, for the whole process, never destroyed: threads may be inside while it ends. A
// fork's child finds the table whole.
uint64_t AddHandle(Kind kind, std::shared_ptr<void> object);
// InvalidArgument: not a living handle of this kind; the message says which.
absl::StatusOr<std::shared_ptr<void>> FindHandle(Kind kind, uint64_t handle);
// The same, and no later call finds it. Null for 0.
absl::StatusOr<std::shared_ptr<void>> TakeHandle(Kind kind, uint64_t handle);

template <typename T>
absl::StatusOr<std::shared_ptr<T>> Find(uint64_t handle) {
  absl::StatusOr<std::shared_ptr<void>> found = FindHandle(T::kKind, handle);
  if (!found.ok()) return found.status();
  return std::static_pointer_cast<T>(*std::move(found));
}
template <typename T>
absl::StatusOr<std::shared_ptr<T>> Take(uint64_t handle) {
  absl::StatusOr<std::shared_ptr<void>> taken = TakeHandle(T::kKind, handle);
  if (!taken.ok()) return taken.status();
  return std::static_pointer_cast<T>(*std::move(taken));
}
template <typename T>
uint64_t Add(std::shared_ptr<T> object) {
  return AddHandle(T::kKind, std::move(object));
}

}  // namespace cistern::c

#endif  // CISTERN_CLIENT_C_HANDLES_H_
