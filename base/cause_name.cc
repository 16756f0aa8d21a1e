#include "base/cause_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/store.pb.h"

namespace cistern {

std::string CauseName(int cause) {
  if (!wire::Cause_IsValid(cause)) return absl::StrCat("cause_", cause);
  const std::string name = wire::Cause_Name(static_cast<wire::Cause>(cause));
  return absl::AsciiStrToLower(name.substr(sizeof("CAUSE_") - 1));
}

}  // namespace cistern
