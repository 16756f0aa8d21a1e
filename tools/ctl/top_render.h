// A TopView as a page of text, and as JSON.
#ifndef CISTERN_TOOLS_CTL_TOP_RENDER_H_
#define CISTERN_TOOLS_CTL_TOP_RENDER_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/ctl/top_model.h"

namespace cistern::ctl {

struct TopFrame {
  std::string master;   // HOST:PORT
  absl::Time now;       // the wall clock
  std::string trouble;  // why the last answer did not come; "" = it did
  TopSort sort = TopSort::kName;
};

// Lines without ends. `view` may be that of an older answer when there is trouble.
std::vector<std::string> RenderTop(const TopView& view, const TopFrame& frame);

// One object on one line, without an end. Rates that are not known are null; with trouble it has
// "error" and nothing of the view.
std::string TopJson(const TopView& view, const TopFrame& frame);

// The line cut to `width` columns.
std::string CutToWidth(const std::string& line, size_t width);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_TOP_RENDER_H_
