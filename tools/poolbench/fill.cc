#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ctl/admin_client.h"
#include "tools/ctl/table.h"
#include "tools/poolbench/scenarios.h"
#include "tools/replay/random.h"

namespace cistern::poolbench {
namespace {

constexpr double kPutTimes = 8;     // the pool's bytes
constexpr double kFullAfter = 1.5;  // from here on a segment has been full
constexpr absl::Duration kSampleInterval = absl::Milliseconds(50);

// The share of the stores' allocatable bytes that is payload, by their last heartbeats.
absl::StatusOr<double> PayloadShare(ctl::AdminClient& admin) {
  CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply stats, admin.Stats());
  uint64_t payload = 0, capacity = 0;
  for (const admin::TierStats& tier : stats.pool().tiers()) {
    payload += tier.payload_bytes();
    capacity += tier.capacity_bytes();
  }
  if (capacity == 0) return absl::UnavailableError("no store has told its capacity");
  return static_cast<double>(payload) / static_cast<double>(capacity);
}

// Chunks of `least` to `most` bytes, put until the segments have been full for long.
absl::StatusOr<std::vector<double>> Fill(const Case& one, uint64_t most, const ScenarioEnv& env) {
  const Options& options = env.options;
  pool::LocalPoolOptions pool_options;
  pool_options.stores = static_cast<int>(options.stores);
  pool_options.pool_bytes = options.pool_bytes;
  pool_options.expected_chunk_bytes = one.chunk_bytes;
  pool_options.interrupted = env.interrupted;
  pool_options.master_set = {"high_watermark=0.98", "low_watermark=0.97", "heartbeat=20ms"};
  CISTERN_ASSIGN_OR_RETURN(const auto pool, pool::LocalPool::Start(pool_options, env.clock));
  CISTERN_ASSIGN_OR_RETURN(const auto client, ConnectTo(pool.get(), options));
  CISTERN_ASSIGN_OR_RETURN(const auto admin,
                           ctl::AdminClient::Make(pool->connection(), absl::Seconds(5)));
  CISTERN_ASSIGN_OR_RETURN(const auto ns, client->OpenNamespace("fill", "poolbench"));
  CISTERN_ASSIGN_OR_RETURN(const Buffer buffer, client->AllocateBuffer(most * one.batch));
  replay::Random random(1);
  std::vector<double> shares;
  std::vector<Span> spans(one.batch);
  std::vector<PutItem> items(one.batch);
  const auto pool_bytes = static_cast<double>(options.pool_bytes);
  MonoTime sample_at = env.clock.Mono();
  uint64_t number = 0;
  for (double put = 0; put < kPutTimes * pool_bytes;) {
    if (env.interrupted()) return absl::CancelledError("interrupted");
    for (uint64_t i = 0; i < one.batch; ++i) {
      const uint64_t bytes =
          one.chunk_bytes + random.Below((most - one.chunk_bytes) / 4096 + 1) * 4096;
      spans[i] = {static_cast<uint8_t*>(buffer.data()) + i * most, bytes};
      CISTERN_ASSIGN_OR_RETURN(items[i].id,
                               ns->Hash(std::string(absl::StrCat("chunk-", number++))));
      items[i].memory.spans = absl::MakeConstSpan(&spans[i], 1);
      put += static_cast<double>(bytes);
    }
    const BatchResult result = ns->BatchPut(items);
    CISTERN_RETURN_IF_ERROR(result.status);
    if (put < kFullAfter * pool_bytes || env.clock.Mono() < sample_at) continue;
    CISTERN_ASSIGN_OR_RETURN(const double share, PayloadShare(*admin));
    shares.push_back(share);
    sample_at = env.clock.Mono() + kSampleInterval;
  }
  if (shares.empty()) return absl::InternalError("the pool was filled before it was looked at");
  return shares;
}

void AddFigures(const std::string& what, const std::vector<double>& shares,
                std::vector<Figure>* out) {
  out->push_back(
      {absl::StrCat("payload of a full segment, ", what, ": median"), Median(shares), "share"});
  out->push_back({absl::StrCat("payload of a full segment, ", what, ": least"),
                  *std::min_element(shares.begin(), shares.end()), "share"});
}

}  // namespace

absl::StatusOr<std::vector<Figure>> RunFill(const Case& one, const ScenarioEnv& env) {
  std::vector<Figure> figures;
  CISTERN_ASSIGN_OR_RETURN(const std::vector<double> same, Fill(one, one.chunk_bytes, env));
  AddFigures("one size", same, &figures);
  CISTERN_ASSIGN_OR_RETURN(const std::vector<double> mixed, Fill(one, 4 * one.chunk_bytes, env));
  AddFigures("mixed sizes", mixed, &figures);
  figures.push_back(
      {"looks at each", static_cast<double>(std::min(same.size(), mixed.size())), "count"});
  return figures;
}

}  // namespace cistern::poolbench
