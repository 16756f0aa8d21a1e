#include "store/get_call.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/fault.h"
#include "base/status.h"
#include "proto/data.pb.h"
#include "store/connection_state.h"
#include "store/get_stream.h"

namespace cistern::store {
namespace {

using transport::FrameType;

// What of one chunk is asked for, after checks against the chunk's real length.
struct Selection {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool whole_parts = false;  // some part lies wholly inside
  bool cuts_parts = false;   // the reader cannot check all of it
};

// False: the range or run of parts is not inside the chunk.
bool Select(const wire::GetRequest& request, uint64_t range_offset, uint64_t range_bytes,
            const PartLayout& layout, Selection* out) {
  if (range_bytes != 0) {
    if (range_offset > layout.length || range_bytes > layout.length - range_offset) return false;
    out->begin = range_offset;
    out->end = range_offset + range_bytes;
  } else {
    if (request.first_part() >= layout.count) return false;
    const uint32_t last =
        request.part_count() == 0
            ? layout.count
            : static_cast<uint32_t>(std::min<uint64_t>(
                  layout.count, uint64_t{request.first_part()} + request.part_count()));
    out->begin = layout.PartBegin(request.first_part());
    out->end = std::min(layout.PartBegin(last), layout.length);
  }
  const bool cut_begin = out->begin % layout.part_bytes != 0;
  const bool cut_end = out->end != layout.length && out->end % layout.part_bytes != 0;
  out->cuts_parts = cut_begin || cut_end;
  const uint64_t first = (out->begin + layout.part_bytes - 1) / layout.part_bytes;
  const uint64_t after = out->end == layout.length ? layout.count : out->end / layout.part_bytes;
  out->whole_parts = after > first;
  return true;
}

struct Request {
  wire::GetRequest meta;
  NamespaceIndex ns;
  MonoTime deadline;
  std::vector<ChunkName> names;
  Column<uint64_t> range_offsets;
  Column<uint32_t> range_lengths;
  Column<uint32_t> target_lengths;
};

absl::Status Parse(const ServiceContext& context, transport::ServerCall& call, Request* out) {
  wire::GetRequest& meta = out->meta;
  if (!meta.ParseFromArray(call.meta().data(), static_cast<int>(call.meta().size()))) {
    return absl::InvalidArgumentError("get: malformed request");
  }
  CISTERN_ASSIGN_OR_RETURN(
      out->ns, ConnectionState::Of(call.connection(), *context.chunks).Find(meta.ns_ref()));
  CISTERN_ASSIGN_OR_RETURN(const KeyColumn ids, KeyColumn::Parse(meta.ids()));
  const size_t n = ids.size();
  if (n == 0 || n > kMaxKeysPerRequest) {
    return absl::InvalidArgumentError(
        absl::StrCat("get: ", n, " chunks; 1 to ", kMaxKeysPerRequest, " fit a request"));
  }
  CISTERN_ASSIGN_OR_RETURN(const auto shards,
                           Column<uint16_t>::Parse(meta.shards(), n, "shards", true, false));
  CISTERN_ASSIGN_OR_RETURN(
      out->range_offsets,
      Column<uint64_t>::Parse(meta.range_offsets(), n, "range_offsets", true, false));
  CISTERN_ASSIGN_OR_RETURN(
      out->range_lengths,
      Column<uint32_t>::Parse(meta.range_lengths(), n, "range_lengths", true, false));
  CISTERN_ASSIGN_OR_RETURN(
      out->target_lengths,
      Column<uint32_t>::Parse(meta.target_lengths(), n, "target_lengths", false, true));
  if (meta.order() != wire::CHUNK_MAJOR && meta.order() != wire::PART_MAJOR) {
    return absl::UnimplementedError(
        absl::StrCat("get: this store knows no order ", static_cast<int>(meta.order())));
  }
  out->deadline = DeadlineOf(call, meta.deadline_ms());
  if (context.clock->Mono() >= out->deadline) {
    return absl::DeadlineExceededError("get: its time had passed when it was read");
  }
  call.SetDeadline(out->deadline);
  out->names.reserve(n);
  for (size_t i = 0; i < n; ++i) out->names.push_back(ChunkName{ids[i], Shard(shards[i])});
  return absl::OkStatus();
}

// One get under way: on the connection's loop thread until its chunks are found, then, where some
// have to be verified first, on the thread for that. The references hold all of it in place.
struct Get {
  Get(const ServiceContext& c, std::unique_ptr<transport::ServerCall> answered)
      : context(c), call(std::move(answered)) {}

  const ServiceContext& context;
  std::unique_ptr<transport::ServerCall> call;
  MonoTime deadline;
  bool part_major = false;
  std::vector<ChunkRef> refs;  // by chunk
  std::string statuses;        // by chunk
  // Of the chunks that are served, and of those that are if they prove sound.
  std::vector<GetPiece> pieces;

  struct Unverified {
    size_t chunk = 0;
    size_t piece = 0;
  };
  std::vector<Unverified> unverified;
  size_t looked_at = 0;  // of them

  // The chunk is not served after all.
  void Refuse(const Unverified& which, wire::ChunkStatus why) {
    statuses[which.chunk] = static_cast<char>(why);
    pieces[which.piece] = GetPiece();
  }
  // The caller's time is over, or too much waits: asked again, those before are verified already.
  void RefuseRest() {
    while (looked_at < unverified.size()) Refuse(unverified[looked_at++], wire::CHUNK_UNAVAILABLE);
  }
};

// Checks one found chunk against what is asked and says where its share of the stream is, and
// whether the store has to verify it first: what readers may not, or cannot, verify is verified
// here once, before it is first served.
wire::ChunkStatus Check(const Request& request, size_t i, const ChunkRef& ref, bool always_verified,
                        GetPiece* piece, bool* to_verify) {
  Selection selection;
  if (!Select(request.meta, request.range_offsets[i], request.range_lengths[i], ref.layout(),
              &selection)) {
    return wire::CHUNK_INVALID_ARGUMENT;
  }
  const uint64_t room = request.target_lengths[i];
  const uint64_t bytes = selection.end - selection.begin;
  if (request.meta.any_length() ? bytes > room : bytes != room) {
    return wire::CHUNK_INVALID_ARGUMENT;  // GetHead.lengths names the real one
  }
  const bool reader_checks = always_verified && !selection.cuts_parts;
  *to_verify = !reader_checks && !ref.verified() && ref.digest_kind() != wire::DIGEST_NONE;
  // Whole: only against all of it can the reader check the root, and so the name.
  const absl::Span<const PartDigest> table = ref.part_digests();
  if (selection.whole_parts && !table.empty()) {
    piece->table = reinterpret_cast<const char*>(table.data());
    piece->table_bytes = table.size() * sizeof(PartDigest);
  }
  piece->payload = ref.payload().data();
  piece->begin = selection.begin;
  piece->end = selection.end;
  piece->part_bytes = ref.layout().part_bytes;
  return wire::CHUNK_OK;
}

void CheckAll(const Request& request, Get* get) {
  const size_t n = get->refs.size();
  const bool always_verified =
      get->context.chunks->NamespaceOptionsOf(request.ns).verify() == wire::VERIFY_ALWAYS;
  get->statuses.assign(n, static_cast<char>(wire::CHUNK_NOT_FOUND));
  get->pieces.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    if (!get->refs[i]) continue;
    GetPiece piece;
    bool to_verify = false;
    const wire::ChunkStatus status =
        Check(request, i, get->refs[i], always_verified, &piece, &to_verify);
    get->statuses[i] = static_cast<char>(status);
    if (status != wire::CHUNK_OK) continue;
    if (to_verify) get->unverified.push_back({i, get->pieces.size()});
    get->pieces.push_back(piece);
  }
}

// The answer's columns, as the statuses are now; the bytes of the extents that are held.
wire::GetHead MakeHead(const Get& get, uint64_t* held) {
  const size_t n = get.refs.size();
  wire::GetHead head;
  ColumnWriter<uint32_t> lengths(head.mutable_lengths(), n);
  ColumnWriter<uint32_t> part_bytes(head.mutable_part_bytes(), n);
  ColumnWriter<uint64_t> roots(head.mutable_roots(), n);
  ColumnWriter<uint64_t> versions(head.mutable_versions(), n);
  std::string kinds(n, static_cast<char>(wire::DIGEST_PRODUCER));
  bool any_other_kind = false;
  for (size_t i = 0; i < n; ++i) {
    const ChunkRef& ref = get.refs[i];
    if (!ref) continue;
    *held += ref.extent_bytes();
    lengths.Set(i, static_cast<uint32_t>(ref.length()));
    part_bytes.Set(i, static_cast<uint32_t>(ref.layout().part_bytes));
    roots.Set(i, ref.root());
    versions.Set(i, ref.version().value);
    kinds[i] = static_cast<char>(ref.digest_kind());
    any_other_kind |= ref.digest_kind() != wire::DIGEST_PRODUCER;
  }
  if (any_other_kind) head.set_digest_kinds(std::move(kinds));
  return head;
}

void Answer(Get* get) {
  const ServiceContext& context = get->context;
  transport::ServerCall& call = *get->call;
  uint64_t held = 0;
  wire::GetHead head = MakeHead(*get, &held);
  head.set_statuses(std::move(get->statuses));
  const auto refused = [](const GetPiece& piece) { return piece.payload == nullptr; };
  if (!get->unverified.empty()) {
    get->pieces.erase(std::remove_if(get->pieces.begin(), get->pieces.end(), refused),
                      get->pieces.end());
  }
  uint64_t total = 0;
  for (const GetPiece& piece : get->pieces) total += piece.stream_bytes();
  head.set_payload_bytes(total);

  context.got_bytes->fetch_add(total, std::memory_order_relaxed);
  std::unique_ptr<GetStream> stream;
  if (total != 0) {
    // Entered only now: a peer is not to blame for the time that its chunks' verifying took.
    stream =
        std::make_unique<GetStream>(std::move(get->refs), std::move(get->pieces), get->part_major,
                                    context.peers->Begin(call.connection(), held, get->deadline));
  }
  const bool whole = total <= transport::kInlinePayloadBytes;
  call.Reply(FrameType::kGetHead, head.SerializeAsString(), /*final=*/whole, std::move(stream));
  if (!whole) call.Reply(FrameType::kGetDone, std::string(), /*final=*/true);
  (void)CISTERN_FAULT("store.get.answered");
}

void VerifySome(const std::shared_ptr<Get>& get);

void QueueVerifying(const std::shared_ptr<Get>& get) {
  if (get->context.run_verifying([get] { VerifySome(get); })) return;
  get->RefuseRest();
  Answer(get.get());
}

// Verifies a slice, then gives the next get its turn: a small one never waits for all of a large
// one. On the verifying thread.
void VerifySome(const std::shared_ptr<Get>& get) {
  constexpr uint64_t kSliceBytes = 4 << 20;
  (void)CISTERN_FAULT("store.get.verifying");
  if (get->call->aborted()) return;  // nobody waits for it
  const ServiceContext& context = get->context;
  uint64_t bytes = 0;
  while (get->looked_at < get->unverified.size() && bytes < kSliceBytes) {
    if (context.clock->Mono() >= get->deadline) {
      get->RefuseRest();
      break;
    }
    const Get::Unverified& next = get->unverified[get->looked_at++];
    const ChunkRef& ref = get->refs[next.chunk];
    bytes += ref.length();
    if (context.chunks->VerifyOnce(ref).ok()) continue;
    get->Refuse(next, wire::CHUNK_DATA_LOSS);
    context.poke_session();
  }
  if (get->looked_at < get->unverified.size()) return QueueVerifying(get);
  Answer(get.get());
}

}  // namespace

void ServeGet(const ServiceContext& context, std::unique_ptr<transport::ServerCall> call) {
  (void)CISTERN_FAULT("store.get.asked");
  Request request;
  if (absl::Status s = Parse(context, *call, &request); !s.ok()) {
    call->Fail(s);
    return;
  }
  const size_t n = request.names.size();
  std::vector<ChunkRef> refs(n);
  const size_t found = context.chunks->AcquireMany(request.ns, request.names, context.clock->Wall(),
                                                   absl::MakeSpan(refs));
  if (found < n) context.poke_session();  // one may have been dropped: its header was bad
  if (CISTERN_FAULT("store.get.acquired")) {
    call->Fail(absl::UnavailableError("fault point store.get.acquired"));
    return;
  }
  Get get(context, std::move(call));
  get.deadline = request.deadline;
  get.part_major = request.meta.order() == wire::PART_MAJOR;
  get.refs = std::move(refs);
  CheckAll(request, &get);
  if (get.unverified.empty()) return Answer(&get);
  QueueVerifying(std::make_shared<Get>(std::move(get)));
}

}  // namespace cistern::store
