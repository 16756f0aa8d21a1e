// Packed columns and bitmaps as proto/types.proto defines them: views that never allocate per key.
#ifndef CISTERN_BASE_COLUMNS_H_
#define CISTERN_BASE_COLUMNS_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"

namespace cistern {

static_assert(std::endian::native == std::endian::little, "columns are read in place");

// A read-only view of n elements of type T (an unsigned integer) in a bytes field. `broadcast`
// columns hold one element for all; absent columns read as `fallback`. Borrows the bytes.
template <typename T>
class Column {
 public:
  // InvalidArgument when the size fits none of the allowed forms.
  static absl::StatusOr<Column> Parse(std::string_view bytes, size_t n, std::string_view what,
                                      bool allow_empty, bool allow_broadcast, T fallback = T{}) {
    Column c;
    c.n_ = n;
    c.fallback_ = fallback;
    if (bytes.size() == n * sizeof(T)) {
      c.data_ = bytes.data();
      c.stride_ = sizeof(T);
    } else if (allow_broadcast && bytes.size() == sizeof(T)) {
      c.data_ = bytes.data();
    } else if (!(allow_empty && bytes.empty())) {
      return absl::InvalidArgumentError(absl::StrCat("column ", std::string(what), " has ",
                                                     bytes.size(), " bytes for ", n, " elements"));
    }
    return c;
  }
  T operator[](size_t i) const {
    if (data_ == nullptr) return fallback_;
    T v;
    std::memcpy(&v, data_ + i * stride_, sizeof(T));
    return v;
  }
  size_t size() const { return n_; }

 private:
  const char* data_ = nullptr;
  size_t stride_ = 0;
  size_t n_ = 0;
  T fallback_{};
};

// A read-only view of n 16-byte key ids. Borrows the bytes.
class KeyColumn {
 public:
  static absl::StatusOr<KeyColumn> Parse(std::string_view bytes) {
    if (bytes.size() % KeyId::kBytes != 0) {
      return absl::InvalidArgumentError("ids: not a multiple of 16 bytes");
    }
    KeyColumn c;
    c.data_ = bytes.data();
    c.n_ = bytes.size() / KeyId::kBytes;
    return c;
  }
  KeyId operator[](size_t i) const { return KeyId::FromBytes(data_ + i * KeyId::kBytes); }
  size_t size() const { return n_; }

 private:
  const char* data_ = nullptr;
  size_t n_ = 0;
};

// Builds a column of n elements inside a protobuf bytes field: one allocation for the column.
template <typename T>
class ColumnWriter {
 public:
  ColumnWriter(std::string* out, size_t n) : out_(out) { out_->assign(n * sizeof(T), '\0'); }
  void Set(size_t i, T v) { std::memcpy(out_->data() + i * sizeof(T), &v, sizeof(T)); }

 private:
  std::string* out_;
};

inline size_t BitmapBytes(size_t n) { return (n + 7) / 8; }
inline bool BitmapGet(std::string_view bits, size_t i) {
  return i / 8 < bits.size() && (static_cast<uint8_t>(bits[i / 8]) >> (i % 8) & 1) != 0;
}
inline void BitmapSet(std::string* bits, size_t i) {
  (*bits)[i / 8] = static_cast<char>(static_cast<uint8_t>((*bits)[i / 8]) | 1u << (i % 8));
}
// InvalidArgument unless it has the size for n bits and no bit set beyond (or is empty, when
// allowed: all zero).
absl::Status CheckBitmap(std::string_view bits, size_t n, std::string_view what, bool allow_empty);

}  // namespace cistern

#endif  // CISTERN_BASE_COLUMNS_H_
