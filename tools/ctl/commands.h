// The subcommands of cisternctl: each has a file of its own, named after it, and adds itself.
#ifndef CISTERN_TOOLS_CTL_COMMANDS_H_
#define CISTERN_TOOLS_CTL_COMMANDS_H_

#include "tools/ctl/command_line.h"
#include "tools/ctl/context.h"

namespace cistern::ctl {

// `context` must outlive the parse.
void AddStats(const Command& app, Context& context);
void AddStores(const Command& app, Context& context);
void AddSegments(const Command& app, Context& context);
void AddNamespaces(const Command& app, Context& context);
void AddChunks(const Command& app, Context& context);
void AddPut(const Command& app, Context& context);
void AddGet(const Command& app, Context& context);
void AddEvict(const Command& app, Context& context);
void AddPing(const Command& app, Context& context);
void AddTop(const Command& app, Context& context);
void AddDoctor(const Command& app, Context& context);
void AddVersion(const Command& app, Context& context);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_COMMANDS_H_
