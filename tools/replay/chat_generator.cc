#include "tools/replay/chat_generator.h"

#include <algorithm>
#include <queue>
#include <utility>
#include <vector>

#include "tools/replay/random.h"

namespace cistern::replay {
namespace {

// A text whose full blocks have ids of their own: a system prompt, or such a prompt and a document.
struct Prefix {
  std::vector<uint64_t> full_blocks;
  uint32_t tokens = 0;
};

struct Session {
  std::vector<uint64_t> full_blocks;  // of what was said so far
  uint32_t tokens = 0;                // said so far, answers included
  uint32_t turns_left = 0;
};

class Generator {
 public:
  explicit Generator(const ChatOptions& options) : options_(options), random_(options.seed) {
    for (uint32_t i = 0; i < options_.system_prompts; ++i) {
      systems_.push_back(Extend({}, Between(300, 3500)));
    }
    for (uint32_t i = 0; i < options_.documents; ++i) {
      documents_.push_back(Extend(systems_[Popular(systems_.size())], Between(1500, 16000)));
    }
  }

  Workload Run() {
    Workload workload;
    workload.reserve(options_.requests);
    uint64_t now_ms = 0;
    for (uint32_t i = 0; i < options_.concurrent_sessions; ++i) {
      StartSession(random_.Below(20'000));
    }
    while (workload.size() < options_.requests) {
      const auto [time_ms, index] = due_.top();
      due_.pop();
      now_ms = time_ms;
      workload.push_back(Turn(now_ms, sessions_[index]));
      const Request& request = workload.back();
      Session& session = sessions_[index];
      if (--session.turns_left == 0 || session.tokens > options_.max_prompt_tokens) {
        session = {};
        free_.push_back(index);
        StartSession(now_ms + 500 + random_.Below(10'000));
      } else {
        // The answer is written (30 ms a token), read, and replied to.
        due_.emplace(now_ms + 30 * request.output_tokens + 2'000 + random_.Exponential(25'000),
                     index);
      }
    }
    return workload;
  }

 private:
  uint32_t Between(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random_.Below(high - low + 1));
  }
  // An index below n; 0 is the most likely, k about 1 / (k + 1) as likely.
  size_t Popular(size_t n) {
    double total = 0;
    for (size_t i = 0; i < n; ++i) total += 1.0 / static_cast<double>(i + 1);
    double point = random_.Unit() * total;
    for (size_t i = 0; i + 1 < n; ++i) {
      point -= 1.0 / static_cast<double>(i + 1);
      if (point < 0) return i;
    }
    return n - 1;
  }
  Prefix Extend(const Prefix& base, uint32_t tokens) {
    Prefix out = base;
    out.tokens += tokens;
    while (out.full_blocks.size() < out.tokens / kBlockTokens) {
      out.full_blocks.push_back(next_block_++);
    }
    return out;
  }

  void StartSession(uint64_t at_ms) {
    const uint64_t kind = random_.Below(100);
    const Prefix& system = systems_[Popular(systems_.size())];
    const Prefix prefix = kind < 25   ? documents_[Popular(documents_.size())]
                          : kind < 70 ? Extend(system, Between(1500, 16000))
                                      : system;
    Session session{prefix.full_blocks, prefix.tokens, 1};
    while (session.turns_left < 60 && random_.Unit() > 1 / options_.mean_turns) {
      ++session.turns_left;
    }
    size_t index = sessions_.size();
    if (free_.empty()) {
      sessions_.push_back(std::move(session));
    } else {
      index = free_.back();
      free_.pop_back();
      sessions_[index] = std::move(session);
    }
    due_.emplace(at_ms, index);
  }

  Request Turn(uint64_t now_ms, Session& session) {
    Append(session,
           20 + static_cast<uint32_t>(std::min<uint64_t>(random_.Exponential(400), 8'000)));
    Request request;
    request.timestamp_ms = now_ms;
    request.input_tokens = session.tokens;
    request.output_tokens =
        10 + static_cast<uint32_t>(std::min<uint64_t>(random_.Exponential(300), 4'000));
    request.blocks = session.full_blocks;
    if (session.tokens % kBlockTokens != 0) request.blocks.push_back(next_block_++);
    Append(session, request.output_tokens);
    return request;
  }

  void Append(Session& session, uint32_t tokens) {
    session.tokens += tokens;
    while (session.full_blocks.size() < session.tokens / kBlockTokens) {
      session.full_blocks.push_back(next_block_++);
    }
  }

  const ChatOptions options_;
  Random random_;
  uint64_t next_block_ = 0;
  std::vector<Prefix> systems_;
  std::vector<Prefix> documents_;
  std::vector<Session> sessions_;
  std::vector<size_t> free_;
  using Due = std::pair<uint64_t, size_t>;  // when, which session
  std::priority_queue<Due, std::vector<Due>, std::greater<Due>> due_;
};

}  // namespace

Workload GenerateChat(const ChatOptions& options) { return Generator(options).Run(); }

}  // namespace cistern::replay
