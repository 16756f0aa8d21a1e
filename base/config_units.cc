// Sizes and times as people write them.
#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/config.h"
#include "base/string_view.h"

namespace cistern {
namespace {

struct Unit {
  std::string_view name;
  uint64_t bytes;
};
// The binary ones by size: FormatSize goes through them.
constexpr Unit kUnits[] = {
    {"PiB", uint64_t{1} << 50},
    {"TiB", uint64_t{1} << 40},
    {"GiB", uint64_t{1} << 30},
    {"MiB", uint64_t{1} << 20},
    {"KiB", uint64_t{1} << 10},
    {"B", 1},
    {"", 1},
    {"PB", 1'000'000'000'000'000},
    {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000},
    {"MB", 1'000'000},
    {"KB", 1'000},
    {"kB", 1'000},
};
constexpr size_t kBinaryUnits = 6;

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

// Takes the digits at the front of `*text` away.
std::string_view TakeDigits(std::string_view* text) {
  size_t n = 0;
  while (n < text->size() && IsDigit((*text)[n])) ++n;
  const std::string_view digits = text->substr(0, n);
  text->remove_prefix(n);
  return digits;
}

absl::Status BadSize(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", AbslView(text), "\" is not a size: ", AbslView(why)));
}

}  // namespace

absl::StatusOr<uint64_t> ParseSize(std::string_view text) {
  constexpr std::string_view kAllowed =
      "write a number of bytes, or one with KiB, MiB, GiB, TiB (powers of 1024) or kB, MB, GB, TB "
      "(powers of 1000)";
  constexpr size_t kMaxFractionDigits = 9;
  std::string_view rest = text;
  const std::string_view whole_digits = TakeDigits(&rest);
  std::string_view fraction_digits;
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    fraction_digits = TakeDigits(&rest);
    if (fraction_digits.empty() || fraction_digits.size() > kMaxFractionDigits) {
      return BadSize(text, kAllowed);
    }
  }
  if (whole_digits.empty()) return BadSize(text, kAllowed);
  const Unit* unit = std::find_if(std::begin(kUnits), std::end(kUnits),
                                  [rest](const Unit& u) { return u.name == rest; });
  if (unit == std::end(kUnits)) return BadSize(text, kAllowed);
  if (unit->bytes == 1 && !fraction_digits.empty()) return BadSize(text, "bytes are whole");
  uint64_t whole;
  if (!absl::SimpleAtoi(AbslView(whole_digits), &whole) ||
      whole > std::numeric_limits<uint64_t>::max() / unit->bytes) {
    return BadSize(text, "it is more than 64 bits hold");
  }
  // 10^9 x the largest unit needs 80 bits.
  unsigned __int128 fraction = 0;
  unsigned __int128 scale = 1;
  for (const char digit : fraction_digits) {
    fraction = fraction * 10 + static_cast<unsigned>(digit - '0');
    scale *= 10;
  }
  const uint64_t of_fraction = static_cast<uint64_t>(fraction * unit->bytes / scale);
  const uint64_t of_whole = whole * unit->bytes;
  if (of_fraction > std::numeric_limits<uint64_t>::max() - of_whole) {
    return BadSize(text, "it is more than 64 bits hold");
  }
  return of_whole + of_fraction;
}

absl::StatusOr<uint64_t> ParseMillis(std::string_view text) {
  uint64_t ms;
  if (!text.empty() && std::all_of(text.begin(), text.end(), IsDigit) &&
      absl::SimpleAtoi(AbslView(text), &ms)) {
    return ms;
  }
  absl::Duration duration;
  // Abseil also takes "-5s", "+5s", "inf" and spaces around them.
  if (text.empty() || !(IsDigit(text.front()) || text.front() == '.') ||
      !absl::ParseDuration(AbslView(text), &duration) || duration == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", AbslView(text),
                     "\" is not a time: write \"30s\", \"2ms\", \"500us\", \"1m30s\" or a number "
                     "of milliseconds"));
  }
  return static_cast<uint64_t>(
      absl::ToInt64Milliseconds(absl::Ceil(duration, absl::Milliseconds(1))));
}

std::string FormatSize(uint64_t bytes) {
  if (bytes == 0) return "0B";
  const Unit* unit = std::find_if(std::begin(kUnits), std::begin(kUnits) + kBinaryUnits,
                                  [bytes](const Unit& u) { return bytes >= u.bytes; });
  if (bytes % unit->bytes == 0) return absl::StrCat(bytes / unit->bytes, AbslView(unit->name));
  return absl::StrFormat("%.1f%s", static_cast<double>(bytes) / static_cast<double>(unit->bytes),
                         std::string(unit->name));
}

}  // namespace cistern
