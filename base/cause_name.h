// What people read for a wire::Cause.
#ifndef CISTERN_BASE_CAUSE_NAME_H_
#define CISTERN_BASE_CAUSE_NAME_H_

#include <string>

namespace cistern {

// "evict_watermark" of CAUSE_EVICT_WATERMARK; "cause_99" of a number without a name.
std::string CauseName(int cause);

}  // namespace cistern

#endif  // CISTERN_BASE_CAUSE_NAME_H_
