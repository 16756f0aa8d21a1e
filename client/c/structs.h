// Structs that begin with their size: read from, and written to, callers that were compiled with an
// older or a newer header.
#ifndef CISTERN_CLIENT_C_STRUCTS_H_
#define CISTERN_CLIENT_C_STRUCTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cistern.h"

namespace cistern::c {

// A struct's size in the first header that had it: nobody's is shorter. When a struct grows it gets
// a line of its own here.
template <typename T>
inline constexpr uint32_t kFirstSize = sizeof(T);

// Far beyond what any struct may grow to: more is a size that was never set.
inline constexpr uint32_t kMaxStructBytes = 4096;

inline absl::Status CheckStructSize(uint32_t size, uint32_t first, const char* what) {
  if (size >= first && size <= kMaxStructBytes && size % 4 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ".struct_size is ", size, ", not ", first, " or more"));
}

// What a newer caller says beyond what we know must be 0.
inline absl::Status ReadBytes(const void* in, uint32_t in_size, void* out, uint32_t out_size,
                              const char* what) {
  const auto* const bytes = static_cast<const unsigned char*>(in);
  std::memcpy(out, in, std::min(in_size, out_size));
  for (uint32_t i = out_size; i < in_size; ++i) {
    if (bytes[i] != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " asks for what this library, older than the caller, does not know"));
    }
  }
  return absl::OkStatus();
}

// NULL reads as all 0.
template <typename T>
absl::Status ReadStruct(const T* in, T* out, const char* what) {
  *out = T{};
  if (in == nullptr) return absl::OkStatus();
  if (absl::Status s = CheckStructSize(in->struct_size, kFirstSize<T>, what); !s.ok()) return s;
  return ReadBytes(in, in->struct_size, out, sizeof(T), what);
}

// Item `i` of an array whose elements are `stride` bytes.
template <typename T>
absl::Status ReadElement(const T* items, size_t i, uint32_t stride, T* out, const char* what) {
  const T* const in = reinterpret_cast<const T*>(reinterpret_cast<const char*>(items) + i * stride);
  if (in->struct_size != stride) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, "[", i, "].struct_size is ", in->struct_size, ", that of the first is ", stride));
  }
  *out = T{};
  return ReadBytes(in, stride, out, sizeof(T), what);
}

// Whether `out` can be written.
template <typename T>
absl::Status CheckOut(const T* out, const char* what) {
  if (out == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
  return CheckStructSize(out->struct_size, kFirstSize<T>, what);
}
// Precondition: CheckOut. The caller's size stays; what it has beyond ours becomes 0.
template <typename T>
void WriteStruct(T* out, T value) {
  const uint32_t size = out->struct_size;
  value.struct_size = size;
  std::memcpy(out, &value, std::min<size_t>(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(reinterpret_cast<char*>(out) + sizeof(T), 0, size - sizeof(T));
}

}  // namespace cistern::c

#endif  // CISTERN_CLIENT_C_STRUCTS_H_
