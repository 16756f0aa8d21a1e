#include "tools/ctl/outcome.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/string_view.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {

absl::Status OutcomeOf(const std::string& verb, ChunkCode code, const std::string& message) {
  absl::StatusCode status = absl::StatusCode::kUnknown;
  if (code == ChunkCode::kUnavailable) status = absl::StatusCode::kUnavailable;
  if (code == ChunkCode::kDeadlineExceeded) status = absl::StatusCode::kDeadlineExceeded;
  const std::string what = absl::StrCat(verb, " ended with ", AbslView(ChunkCodeName(code)));
  return absl::Status(status, message.empty() ? what : absl::StrCat(what, ": ", message));
}

absl::Status CheckServed(const admin::ChunkInfo& chunk) {
  std::vector<std::string> away;
  for (const admin::ChunkInfo::Replica& replica : chunk.replicas()) {
    if (replica.serving()) return absl::OkStatus();
    away.push_back(Printable(replica.store()));
  }
  if (away.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the chunk is in ", away.size() == 1 ? "store " : "stores ", absl::StrJoin(away, ", "),
      away.size() == 1 ? ", which is away: a miss until it is back"
                       : ", which are away: a miss until one is back"));
}

absl::Status ExplainMiss(const Context& context, const std::string& ns, const KeyId& id,
                         uint16_t shard, const std::string& what) {
  const absl::Status miss = absl::NotFoundError(absl::StrCat("no ", what));
  const absl::StatusOr<std::unique_ptr<AdminClient>> admin = context.Admin();
  if (!admin.ok()) return miss;
  admin::StatChunkRequest request;
  request.set_namespace_name(ns);
  request.set_id(id.ToHex());
  request.set_shard(shard);
  const absl::StatusOr<admin::StatChunkReply> known = (*admin)->StatChunk(request);
  if (known.ok()) {
    CISTERN_RETURN_IF_ERROR(Annotate(CheckServed(known->chunk()), what));
    return absl::UnavailableError(
        absl::StrCat(what, ": the store that should have it did not give it; try again"));
  }
  const absl::StatusOr<admin::StatsReply> stats = (*admin)->Stats();
  if (!stats.ok()) return miss;
  const bool served =
      std::any_of(stats->stores().begin(), stats->stores().end(),
                  [](const admin::StoreStats& store) { return store.state() == "serving"; });
  if (served) return miss;
  return absl::UnavailableError(
      absl::StrCat("no store of the pool serves now: nobody can tell whether there is a ", what));
}

}  // namespace cistern::ctl
