// cisternctl ping: round trips to the master through the client library.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/client.h"
#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

absl::Status Ping(const Context& context, uint32_t count) {
  CISTERN_ASSIGN_OR_RETURN(const Connection connection, ResolveConnection(context.connection));
  Clock& clock = Clock::Real();
  const MonoTime start = clock.Mono();
  CISTERN_ASSIGN_OR_RETURN(auto client, context.Data());
  const absl::Duration connect = clock.Mono() - start;
  std::vector<absl::Duration> trips;
  for (uint32_t i = 0; i < count; ++i) {
    const MonoTime before = clock.Mono();
    CISTERN_RETURN_IF_ERROR(client->Ping());
    trips.push_back(clock.Mono() - before);
  }
  std::sort(trips.begin(), trips.end());
  const absl::Duration median = trips[trips.size() / 2];
  if (context.json()) {
    nlohmann::ordered_json out;
    out["master"] = connection.data;
    out["pool_id"] = client->pool_id().ToHex();
    out["connect_seconds"] = absl::ToDoubleSeconds(connect);
    out["round_trips"] = count;
    out["min_seconds"] = absl::ToDoubleSeconds(trips.front());
    out["median_seconds"] = absl::ToDoubleSeconds(median);
    out["max_seconds"] = absl::ToDoubleSeconds(trips.back());
    context.out << out.dump(2) << "\n";
  } else {
    context.out << "master " << connection.data << ", pool " << client->pool_id().ToHex()
                << ": connected in " << Latency(connect) << "; " << Plural(count, "round trip")
                << ": least " << Latency(trips.front()) << ", median " << Latency(median)
                << ", most " << Latency(trips.back()) << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddPing(const Command& app, Context& context) {
  auto count = std::make_shared<uint32_t>(10);
  const Command sub =
      app.AddCommand("ping", "Round trips to the master's data port, as a client makes them");
  sub.AddOption("-c,--count", *count, "round trips").Range(1, 100000).ShowDefault();
  sub.OnUse([&context, count] { context.Run([&] { return Ping(context, *count); }); });
}

}  // namespace cistern::ctl
