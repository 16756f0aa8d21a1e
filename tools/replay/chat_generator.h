// A workload of chat sessions, made from a seed: what an inference service sees, without a trace.
//
// Each session starts with one of a few system prompts (some far more popular than others), often
// followed by a document, its own or one that others read too. Each turn appends a message; the
// whole conversation so far, answers included, is the next prompt. Sessions overlap in time. A full
// block of a conversation keeps its id in later turns; its last, partly filled one does not.
#ifndef CISTERN_TOOLS_REPLAY_CHAT_GENERATOR_H_
#define CISTERN_TOOLS_REPLAY_CHAT_GENERATOR_H_

#include <cstdint>

#include "tools/replay/workload.h"

namespace cistern::replay {

struct ChatOptions {
  uint64_t requests = 6000;
  uint64_t seed = 1;
  uint32_t system_prompts = 6;
  uint32_t documents = 300;
  uint32_t concurrent_sessions = 120;  // open at a time
  double mean_turns = 3;
  uint32_t max_prompt_tokens = 128 * 1024;  // a session that would grow beyond it ends
};

// The same options give the same workload, on every machine.
Workload GenerateChat(const ChatOptions& options);

}  // namespace cistern::replay

#endif  // CISTERN_TOOLS_REPLAY_CHAT_GENERATOR_H_
