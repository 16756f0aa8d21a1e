#include "base/columns.h"

namespace cistern {

absl::Status CheckBitmap(std::string_view bits, size_t n, std::string_view what, bool allow_empty) {
  if (allow_empty && bits.empty()) return absl::OkStatus();
  if (bits.size() != BitmapBytes(n)) {
    return absl::InvalidArgumentError(absl::StrCat("bitmap ", std::string(what), " has ",
                                                   bits.size(), " bytes for ", n, " bits"));
  }
  // Spare bits may mean something one day; until then they must not be set by accident.
  if (n % 8 != 0 && static_cast<uint8_t>(bits.back()) >> (n % 8) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("bitmap ", std::string(what), " has bits set beyond ", n));
  }
  return absl::OkStatus();
}

}  // namespace cistern
