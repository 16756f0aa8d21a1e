#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/poolbench/scenarios.h"
#include "tools/poolbench/threads.h"
#include "tools/replay/chat_generator.h"
#include "tools/replay/replay_session.h"
#include "tools/replay/workload.h"

namespace cistern::poolbench {
namespace {

// Runs that need more are got and put in several calls.
constexpr uint64_t kMaxBufferBytes = uint64_t{64} << 20;

absl::StatusOr<replay::Workload> LoadWorkload(const Options& options) {
  if (!options.trace.empty()) return replay::ReadTraceFile(options.trace, options.requests);
  replay::ChatOptions chat;
  chat.requests = options.requests != 0 ? options.requests : kGeneratedRequests;
  return replay::GenerateChat(chat);
}

void AddLatencies(const std::string& what, const replay::LatencyHistogram& latency,
                  std::vector<Figure>* out) {
  const auto us = [](absl::Duration d) { return absl::ToDoubleMicroseconds(d); };
  out->push_back({what + " p50", us(latency.Percentile(0.5)), "us"});
  out->push_back({what + " p99", us(latency.Percentile(0.99)), "us"});
}

double RateOf(uint64_t bytes, const replay::LatencyHistogram& latency) {
  return static_cast<double>(bytes) / std::max(1e-9, absl::ToDoubleSeconds(latency.sum()));
}

std::vector<Figure> FiguresOf(const replay::ReplayCounts& counts, absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  const auto share = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  std::vector<Figure> figures = {
      {"requests", static_cast<double>(counts.requests), "count"},
      {"requests a second", static_cast<double>(counts.requests) / seconds, "1/s"},
      {"prompt tokens not computed again", share(counts.prefix_hit_tokens, counts.prompt_tokens),
       "share"},
      {"put and got, whole run", static_cast<double>(counts.bytes_put + counts.bytes_got) / seconds,
       "bytes/s"},
      {"put, while putting", RateOf(counts.bytes_put, counts.put), "bytes/s"},
      {"got, while getting", RateOf(counts.bytes_got, counts.get), "bytes/s"}};
  AddLatencies("lookup of a prompt", counts.lookup, &figures);
  AddLatencies("get of a run", counts.get, &figures);
  AddLatencies("put of the rest", counts.put, &figures);
  figures.push_back({"misses in a leased run", static_cast<double>(counts.get_misses), "count"});
  return figures;
}

}  // namespace

absl::StatusOr<std::vector<Figure>> RunReplay(const Case& one, const ScenarioEnv& env) {
  const Options& options = env.options;
  CISTERN_ASSIGN_OR_RETURN(const replay::Workload workload, LoadWorkload(options));
  pool::LocalPoolOptions pool_options;
  pool_options.stores = static_cast<int>(options.stores);
  pool_options.pool_bytes = options.pool_bytes;
  pool_options.expected_chunk_bytes = one.chunk_bytes;
  pool_options.interrupted = env.interrupted;
  CISTERN_ASSIGN_OR_RETURN(const auto pool, pool::LocalPool::Start(pool_options, env.clock));
  CISTERN_ASSIGN_OR_RETURN(const auto client, ConnectTo(pool.get(), options));
  CISTERN_ASSIGN_OR_RETURN(const auto ns, client->OpenNamespace("replay", "poolbench"));
  const uint64_t longest = replay::Summarize(workload).longest_request_chunks * one.chunk_bytes;
  const uint64_t room = std::max(
      one.chunk_bytes, std::min(longest, kMaxBufferBytes / one.chunk_bytes * one.chunk_bytes));
  std::vector<Buffer> buffers(options.threads);
  for (Buffer& buffer : buffers) {
    CISTERN_ASSIGN_OR_RETURN(buffer, client->AllocateBuffer(room));
  }
  std::vector<replay::ReplayCounts> counts(options.threads);
  absl::StatusOr<Work> work =
      RunThreads(options.threads, env.clock, [&](uint64_t t) -> absl::StatusOr<Work> {
        replay::ReplaySession session(*ns, buffers[t], env.clock, {.chunk_bytes = one.chunk_bytes});
        for (size_t i = t; i < workload.size(); i += options.threads) {
          if (env.interrupted()) return absl::CancelledError("interrupted");
          session.Replay(workload[i]);
        }
        counts[t] = session.counts();
        return Work();
      });
  if (!work.ok()) return work.status();
  replay::ReplayCounts sum;
  for (const replay::ReplayCounts& part : counts) sum.Merge(part);
  const uint64_t wrong = std::max(sum.verification_failures, client->stats().verify_failures);
  if (wrong > 0) return absl::DataLossError(absl::StrCat(wrong, " chunks had wrong bytes"));
  if (sum.errors > 0) {
    return absl::InternalError(absl::StrCat(sum.errors, " errors, the first: ", sum.first_error));
  }
  return FiguresOf(sum, work->elapsed);
}

}  // namespace cistern::poolbench
