// cisternctl's command line.
#ifndef CISTERN_TOOLS_CTL_APP_H_
#define CISTERN_TOOLS_CTL_APP_H_

#include <ostream>

namespace cistern::ctl {

// Parses, runs one subcommand, returns the exit code.
int RunApp(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_APP_H_
