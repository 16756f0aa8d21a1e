#include "client/get_head.h"

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/status.h"
#include "client/chunk_code.h"
#include "proto/data.pb.h"

namespace cistern {
namespace {

// Views of a head's columns.
struct HeadColumns {
  Column<uint32_t> lengths;
  Column<uint32_t> part_bytes;
  Column<uint64_t> roots;
  Column<uint64_t> versions;
  Column<uint8_t> kinds;
};

absl::StatusOr<HeadColumns> ParseColumns(const wire::GetHead& head, size_t n) {
  HeadColumns c;
  CISTERN_ASSIGN_OR_RETURN(c.lengths,
                           Column<uint32_t>::Parse(head.lengths(), n, "lengths", true, false));
  CISTERN_ASSIGN_OR_RETURN(
      c.part_bytes, Column<uint32_t>::Parse(head.part_bytes(), n, "part_bytes", true, false));
  CISTERN_ASSIGN_OR_RETURN(c.roots, Column<uint64_t>::Parse(head.roots(), n, "roots", true, false));
  CISTERN_ASSIGN_OR_RETURN(c.versions,
                           Column<uint64_t>::Parse(head.versions(), n, "versions", true, false));
  CISTERN_ASSIGN_OR_RETURN(c.kinds, Column<uint8_t>::Parse(head.digest_kinds(), n, "digest_kinds",
                                                           true, false, wire::DIGEST_PRODUCER));
  return c;
}

absl::Status Select(const GetSelection& selection, const GetTarget& target, bool digests,
                    GetChunk* chunk) {
  switch (selection.kind) {
    case GetSelection::Kind::kWhole:
      return SelectWhole(digests, chunk);
    case GetSelection::Kind::kParts:
      return SelectParts(selection.first_part, selection.part_count, digests, chunk);
    case GetSelection::Kind::kRange:
      return SelectRange(target.range_offset, target.range_bytes, digests, chunk);
  }
  return absl::InternalError("no such selection");
}

bool SameChunk(const GetFront& front, const GetChunk& chunk) {
  return front.length == chunk.layout.length && front.part_bytes == chunk.layout.part_bytes &&
         front.root == chunk.root;
}

}  // namespace

absl::Status ReadGetHead(std::string_view meta, const GetBatch& batch, GetHeadResult* out) {
  const size_t n = batch.targets.size();
  wire::GetHead head;
  if (!head.ParseFromArray(meta.data(), static_cast<int>(meta.size())) ||
      head.statuses().size() != n) {
    return absl::InternalError("a get's head does not fit its request");
  }
  CISTERN_ASSIGN_OR_RETURN(const HeadColumns columns, ParseColumns(head, n));
  out->outcomes.assign(n, {});
  out->chunks.clear();
  out->chunks.reserve(n);
  out->targets.clear();
  out->payload_bytes = 0;
  for (size_t i = 0; i < n; ++i) {
    GetOutcome& outcome = out->outcomes[i];
    outcome.code = FromWire(static_cast<uint8_t>(head.statuses()[i]));
    outcome.length = columns.lengths[i];
    outcome.version = columns.versions[i];
    if (outcome.code != ChunkCode::kOk) continue;
    const GetTarget& target = batch.targets[i];
    GetChunk chunk;
    chunk.memory = target.memory;
    chunk.memory_skip = target.memory_skip;
    chunk.name = target.name;
    chunk.root = columns.roots[i];
    chunk.check = target.check;
    CISTERN_ASSIGN_OR_RETURN(chunk.layout,
                             PartLayout::Make(columns.lengths[i], columns.part_bytes[i]));
    CISTERN_RETURN_IF_ERROR(
        Select(batch.selection, target, columns.kinds[i] != wire::DIGEST_NONE, &chunk));
    const uint64_t bytes = chunk.end - chunk.begin;
    if (bytes > target.room() || (bytes < target.room() && !batch.selection.any_length)) {
      return absl::InternalError("a get's head sends another length than was asked for");
    }
    if (target.front.parts > 0 && !SameChunk(target.front, chunk)) {
      outcome.code = ChunkCode::kDataLoss;
    }
    out->payload_bytes += chunk.stream_bytes();
    out->chunks.push_back(chunk);
    out->targets.push_back(i);
  }
  if (out->payload_bytes != head.payload_bytes()) {
    return absl::InternalError(absl::StrCat("a get's head announces ", head.payload_bytes(),
                                            " bytes, its chunks have ", out->payload_bytes));
  }
  return absl::OkStatus();
}

}  // namespace cistern
