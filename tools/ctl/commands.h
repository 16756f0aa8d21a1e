// The subcommands of cisternctl: each has a file of its own, named after it, and adds itself.
#ifndef CISTERN_TOOLS_CTL_COMMANDS_H_
#define CISTERN_TOOLS_CTL_COMMANDS_H_

#include "tools/ctl/context.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cistern::ctl {

// `context` must outlive the parse.
void AddStats(CLI::App& app, Context& context);
void AddStores(CLI::App& app, Context& context);
void AddSegments(CLI::App& app, Context& context);
void AddNamespaces(CLI::App& app, Context& context);
void AddChunks(CLI::App& app, Context& context);
void AddPut(CLI::App& app, Context& context);
void AddGet(CLI::App& app, Context& context);
void AddEvict(CLI::App& app, Context& context);
void AddPing(CLI::App& app, Context& context);
void AddTop(CLI::App& app, Context& context);
void AddDoctor(CLI::App& app, Context& context);
void AddVersion(CLI::App& app, Context& context);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_COMMANDS_H_
