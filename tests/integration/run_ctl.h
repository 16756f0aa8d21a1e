// cisternctl as a command line, in the test's own process.
#ifndef CISTERN_TESTS_INTEGRATION_RUN_CTL_H_
#define CISTERN_TESTS_INTEGRATION_RUN_CTL_H_

#include <sstream>
#include <string>
#include <vector>

#include "tools/ctl/app.h"

namespace cistern {

struct Ran {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// `words` behind the program's name.
inline Ran RunCtl(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"cisternctl"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  std::ostringstream out;
  std::ostringstream err;
  Ran ran;
  ran.exit_code = ctl::RunApp(static_cast<int>(argv.size()), argv.data(), out, err);
  ran.out = out.str();
  ran.err = err.str();
  return ran;
}

}  // namespace cistern

#endif  // CISTERN_TESTS_INTEGRATION_RUN_CTL_H_
