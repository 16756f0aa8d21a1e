#include "client/testing/fake_store.h"

#include <algorithm>
#include <cstring>

#include "base/columns.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace cistern {

using transport::FrameType;
using transport::ServerCall;

namespace {

std::pair<std::string, uint16_t> KeyOf(const ChunkName& name) {
  return {std::string(name.id.view()), name.shard.value};
}

class StringSource final : public transport::PayloadSource {
 public:
  explicit StringSource(std::string data) : data_(std::move(data)) {}
  uint64_t remaining() const override { return data_.size() - position_; }
  void NextPieces(size_t max_bytes, size_t, std::vector<iovec>* out) override {
    const size_t n = std::min<size_t>(max_bytes, remaining());
    out->push_back({data_.data() + position_, n});
    position_ += n;
  }

 private:
  std::string data_;
  size_t position_ = 0;
};

class StringSink final : public transport::PayloadSink {
 public:
  explicit StringSink(size_t bytes) : data_(bytes, '\0') {}
  void NextBuffers(size_t max_bytes, size_t, std::vector<iovec>* out) override {
    const size_t n = std::min(max_bytes, data_.size() - landed_);
    if (n > 0) out->push_back({data_.data() + landed_, n});
  }
  absl::Status Landed(size_t bytes) override {
    landed_ += bytes;
    return absl::OkStatus();
  }
  const std::string& data() const { return data_; }

 private:
  std::string data_;
  size_t landed_ = 0;
};

// A column of `n` elements from a request that this library made: it is sound.
template <typename T>
Column<T> Read(const std::string& bytes, size_t n) {
  return *Column<T>::Parse(bytes, n, "test", true, true);
}

PartLayout LayoutOf(const FakeStore::Chunk& chunk) {
  return *PartLayout::Make(chunk.bytes.size(), chunk.part_bytes);
}

std::vector<PartDigest> DigestsOf(const FakeStore::Chunk& chunk) {
  const std::string& bytes = chunk.digested.empty() ? chunk.bytes : chunk.digested;
  ChunkDigester digester(LayoutOf(chunk));
  digester.Update(bytes.data(), bytes.size());
  return {digester.parts().begin(), digester.parts().end()};
}

// What of a chunk a request asks for: bytes, and the parts wholly inside them.
struct Selection {
  uint64_t begin, end;
  uint32_t first_part, end_part;
};

// One chunk's share of a get's payload.
struct Share {
  std::string table;
  std::string bytes;  // of the chunk, whole
  uint64_t begin, end, part_bytes;
};

std::string PayloadOf(const std::vector<Share>& shares, bool by_part) {
  std::string out;
  if (!by_part) {
    for (const Share& s : shares) out += s.table + s.bytes.substr(s.begin, s.end - s.begin);
    return out;
  }
  uint64_t parts = 0;
  for (const Share& s : shares) {
    out += s.table;
    parts = std::max(parts, (s.end + s.part_bytes - 1) / s.part_bytes);
  }
  for (uint64_t part = 0; part < parts; ++part) {
    for (const Share& s : shares) {
      const uint64_t begin = std::max(s.begin, part * s.part_bytes);
      const uint64_t end = std::min(s.end, (part + 1) * s.part_bytes);
      if (begin < end) out += s.bytes.substr(begin, end - begin);
    }
  }
  return out;
}
Selection Select(const wire::GetRequest& request, size_t i, size_t n, const PartLayout& layout) {
  Selection s{0, layout.length, 0, layout.count};
  if (!request.range_lengths().empty()) {
    s.begin = Read<uint64_t>(request.range_offsets(), n)[i];
    s.end = s.begin + Read<uint32_t>(request.range_lengths(), n)[i];
  } else if (request.first_part() > 0 || request.part_count() > 0) {
    s.begin = layout.PartBegin(request.first_part());
    if (request.part_count() > 0) {
      s.end =
          std::min(layout.length, layout.PartBegin(request.first_part() + request.part_count()));
    }
  }
  s.first_part = static_cast<uint32_t>(RoundUp(s.begin, layout.part_bytes) / layout.part_bytes);
  s.end_part =
      s.end == layout.length ? layout.count : static_cast<uint32_t>(s.end / layout.part_bytes);
  return s;
}

}  // namespace

FakeStore::FakeStore() : id_(RandomId<StoreId>()) {}
FakeStore::~FakeStore() { Stop(); }

void FakeStore::Start(const std::string& token, uint16_t port) {
  RandomBytes(&incarnation_, sizeof(incarnation_));
  transport::TcpServerOptions options;
  options.port = port;
  options.io_threads = 1;
  options.identity.kind = wire::PEER_STORE;
  options.identity.token = token;
  options.identity.pool_id = pool_id_;
  options.identity.peer_id = std::string(id_.view());
  options.identity.incarnation = incarnation_;
  auto server = transport::ListenTcp(options, this);
  CISTERN_CHECK(server.ok());
  server_ = std::move(*server);
  if (socket_path_.empty()) return;
  transport::ShmServerOptions shm;
  shm.socket_path = socket_path_;
  shm.io_threads = 1;
  shm.identity = options.identity;
  shm_server_.reset();  // it would take the new one's socket with it
  auto shm_server = transport::ListenShm(shm, this);
  CISTERN_CHECK(shm_server.ok());
  shm_server_ = std::move(*shm_server);
}

void FakeStore::Stop() {
  if (server_ != nullptr) server_->Stop();
  if (shm_server_ != nullptr) shm_server_->Stop();
  MutexLock lock(mutex_);
  held_.clear();
  gated_.clear();
}

wire::GetRequest FakeStore::last_get() const {
  MutexLock lock(mutex_);
  return last_get_;
}

void FakeStore::AllowPayload(uint64_t bytes) {
  MutexLock lock(mutex_);
  allowed_ = bytes;
  for (Gated& gated : gated_) SendAllowed(&gated);
  gated_.erase(std::remove_if(gated_.begin(), gated_.end(),
                              [](const Gated& gated) { return gated.call == nullptr; }),
               gated_.end());
}

void FakeStore::SendAllowed(Gated* gated) {
  const size_t until = std::min<uint64_t>(allowed_, gated->payload.size());
  if (until > gated->sent) {
    gated->call->Reply(
        FrameType::kData, "", false,
        std::make_unique<StringSource>(gated->payload.substr(gated->sent, until - gated->sent)));
    gated->sent = until;
  }
  if (gated->sent < gated->payload.size()) return;
  gated->call->Reply(FrameType::kGetDone, gated->done, true);
  gated->call = nullptr;
}

bool FakeStore::Has(const ChunkName& name) const {
  MutexLock lock(mutex_);
  return chunks_.count(KeyOf(name)) > 0;
}
void FakeStore::Add(const ChunkName& name, Chunk chunk) {
  MutexLock lock(mutex_);
  chunks_[KeyOf(name)] = std::move(chunk);
}
bool FakeStore::Erase(const ChunkName& name) {
  MutexLock lock(mutex_);
  return chunks_.erase(KeyOf(name)) > 0;
}
size_t FakeStore::size() const {
  MutexLock lock(mutex_);
  return chunks_.size();
}

void FakeStore::Hold(std::shared_ptr<ServerCall> call) {
  call->OnAbort([this](absl::Status) { ++cancelled; });
  MutexLock lock(mutex_);
  held_.push_back(std::move(call));
}

void FakeStore::OnRequest(std::unique_ptr<ServerCall> call) {
  switch (call->type()) {
    case FrameType::kBindNamespace:
      return Bind(std::move(call));
    case FrameType::kGet:
      ++gets;
      if (get_fault_ == Fault::kNever) return Hold(std::move(call));
      return Get(std::shared_ptr<ServerCall>(std::move(call)));
    case FrameType::kPut:
      ++puts;
      if (put_fault_ == Fault::kNever) return Hold(std::move(call));
      return Put(std::move(call));
    case FrameType::kReportBad:
      ++bad_reports;
      return call->Reply(FrameType::kReportBadReply, "", true);
    default:
      return call->Fail(absl::UnimplementedError("not in this fake"));
  }
}

void FakeStore::Bind(std::unique_ptr<ServerCall> call) {
  auto& state = call->connection().user_state;
  if (state == nullptr) state = std::make_shared<uint32_t>(0);
  wire::NamespaceBound bound;
  bound.set_ns_ref(++*static_cast<uint32_t*>(state.get()));
  call->Reply(FrameType::kNamespaceBound, bound.SerializeAsString(), true);
}

void FakeStore::Get(std::shared_ptr<ServerCall> call) {
  const Fault fault = get_fault_;
  if (fault == Fault::kError) return call->Fail(absl::UnavailableError("fault"));
  wire::GetRequest request;
  CISTERN_CHECK(request.ParseFromString(std::string(call->meta())));
  MutexLock lock(mutex_);
  last_get_ = request;
  const size_t n = request.ids().size() / KeyId::kBytes;
  const auto targets = Read<uint32_t>(request.target_lengths(), n);
  wire::GetHead head;
  ColumnWriter<uint8_t> statuses(head.mutable_statuses(), n);
  ColumnWriter<uint32_t> lengths(head.mutable_lengths(), n);
  ColumnWriter<uint32_t> parts(head.mutable_part_bytes(), n);
  ColumnWriter<uint64_t> roots(head.mutable_roots(), n);
  ColumnWriter<uint64_t> versions(head.mutable_versions(), n);
  ColumnWriter<uint8_t> kinds(head.mutable_digest_kinds(), n);
  std::vector<Share> shares;
  for (size_t i = 0; i < n; ++i) {
    ChunkName name;
    name.id = KeyId::FromBytes(request.ids().data() + 16 * i);
    name.shard = Shard(Read<uint16_t>(request.shards(), n)[i]);
    auto found = chunks_.find(KeyOf(name));
    if (found == chunks_.end() || fault == Fault::kMiss) {
      statuses.Set(i, wire::CHUNK_NOT_FOUND);
      continue;
    }
    auto served = found;
    if (fault == Fault::kOtherChunk) {
      served = chunks_.begin();
      while (served->first == found->first) ++served;
    }
    const Chunk& chunk = served->second;
    const PartLayout layout = LayoutOf(chunk);
    std::vector<PartDigest> digests = DigestsOf(chunk);
    const Selection s = Select(request, i, n, layout);
    lengths.Set(i, static_cast<uint32_t>(chunk.bytes.size()));
    if (s.end - s.begin != targets[i] && !(request.any_length() && s.end - s.begin <= targets[i])) {
      statuses.Set(i, wire::CHUNK_INVALID_ARGUMENT);
      continue;
    }
    const ChunkName served_name{KeyId::FromBytes(served->first.first.data()),
                                Shard(served->first.second)};
    parts.Set(i, static_cast<uint32_t>(layout.part_bytes));
    roots.Set(i, RootDigest(digests, layout.length, served_name));
    versions.Set(i, chunk.version);
    kinds.Set(i, chunk.digests ? wire::DIGEST_PRODUCER : wire::DIGEST_NONE);
    Share share{"", chunk.bytes, s.begin, s.end, layout.part_bytes};
    if (chunk.digests && s.end_part > s.first_part) {
      if (chunk.flipped_digest >= 0) digests[static_cast<size_t>(chunk.flipped_digest)] ^= 1;
      share.table.assign(reinterpret_cast<const char*>(digests.data()), 8 * digests.size());
    }
    if (fault == Fault::kFlippedByte) {
      share.bytes[s.end - 1] = static_cast<char>(share.bytes[s.end - 1] ^ 1);
    }
    shares.push_back(std::move(share));
  }
  std::string payload = PayloadOf(shares, request.order() == wire::PART_MAJOR);
  head.set_payload_bytes(payload.size() + (fault == Fault::kLies ? 1 : 0));
  if (fault == Fault::kBadColumns) head.mutable_statuses()->pop_back();
  if (fault == Fault::kHalf || fault == Fault::kCut) payload.resize(payload.size() / 2);
  if (fault == Fault::kCut) {
    return call->Reply(
        FrameType::kGetHead, head.SerializeAsString(), false,
        std::make_unique<StringSource>(std::move(payload)),
        [call](const absl::Status&) { call->ProtocolError(absl::UnavailableError("fault")); });
  }
  wire::GetDone done;
  if (fault == Fault::kTakenBack) {
    done.set_statuses(std::string(n, static_cast<char>(wire::CHUNK_DATA_LOSS)));
  }
  if (allowed_ < payload.size()) {
    call->Reply(FrameType::kGetHead, head.SerializeAsString(), false);
    gated_.push_back({std::move(call), std::move(payload), 0, done.SerializeAsString()});
    return SendAllowed(&gated_.back());
  }
  if (payload.size() <= transport::kInlinePayloadBytes && fault == Fault::kNone) {
    return call->Reply(FrameType::kGetHead, head.SerializeAsString(), true,
                       payload.empty() ? nullptr : std::make_unique<StringSource>(payload));
  }
  call->Reply(FrameType::kGetHead, head.SerializeAsString(), false,
              std::make_unique<StringSource>(std::move(payload)));
  call->Reply(FrameType::kGetDone, done.SerializeAsString(), true);
}

void FakeStore::Put(std::shared_ptr<ServerCall> call) {
  const Fault fault = put_fault_;
  if (fault == Fault::kError) return call->Fail(absl::UnavailableError("fault"));
  wire::PutRequest request;
  CISTERN_CHECK(request.ParseFromString(std::string(call->meta())));
  const size_t n = request.ids().size() / KeyId::kBytes;
  std::string statuses(n, static_cast<char>(wire::CHUNK_OK));
  uint64_t wanted = 0;
  for (size_t i = 0; i < n; ++i) {
    const ChunkName name{KeyId::FromBytes(request.ids().data() + 16 * i),
                         Shard(Read<uint16_t>(request.shards(), n)[i])};
    if (fault == Fault::kFull) {
      statuses[i] = static_cast<char>(wire::CHUNK_RESOURCE_EXHAUSTED);
    } else if (Has(name)) {
      statuses[i] = static_cast<char>(wire::CHUNK_PRESENT);
    }
    if (statuses[i] != wire::CHUNK_OK && !request.payload_inline()) continue;
    const uint32_t length = Read<uint32_t>(request.lengths(), n)[i];
    const PartLayout layout = *PartLayout::Make(length, request.part_bytes());
    wanted += length + (request.digest() == wire::DIGEST_NONE ? 0 : 8 * layout.count);
  }
  if (fault == Fault::kBadColumns) statuses.pop_back();
  if (!request.payload_inline()) {
    wire::PutReady ready;
    ready.set_statuses(statuses);
    ready.set_payload_bytes(wanted);
    call->Reply(FrameType::kPutReady, ready.SerializeAsString(), false);
  }
  auto sink = std::make_shared<StringSink>(wanted);
  call->ReceivePayload(wanted, sink.get(),
                       [this, call, request, statuses, sink](const absl::Status& status) {
                         if (!status.ok()) return;
                         payload_bytes_in += sink->data().size();
                         FinishPut(call, request, statuses, sink->data());
                       });
}

void FakeStore::FinishPut(const std::shared_ptr<ServerCall>& call, const wire::PutRequest& request,
                          const std::string& ready, const std::string& payload) {
  const size_t n = request.ids().size() / KeyId::kBytes;
  std::string statuses = ready;
  size_t at = 0;
  for (size_t i = 0; i < ready.size(); ++i) {
    if (ready[i] != wire::CHUNK_OK && !request.payload_inline()) continue;
    Chunk chunk;
    chunk.part_bytes = request.part_bytes();
    chunk.digests = request.digest() != wire::DIGEST_NONE;
    chunk.bytes = payload.substr(at, Read<uint32_t>(request.lengths(), n)[i]);
    at += chunk.bytes.size();
    if (chunk.digests) {
      const std::vector<PartDigest> digests = DigestsOf(chunk);
      if (std::memcmp(payload.data() + at, digests.data(), 8 * digests.size()) != 0) {
        statuses[i] = static_cast<char>(wire::CHUNK_DATA_LOSS);
      }
      at += 8 * digests.size();
    }
    if (statuses[i] != wire::CHUNK_OK) continue;
    Add({KeyId::FromBytes(request.ids().data() + 16 * i),
         Shard(Read<uint16_t>(request.shards(), n)[i])},
        std::move(chunk));
  }
  wire::PutDone done;
  done.set_statuses(statuses);
  call->Reply(FrameType::kPutDone, done.SerializeAsString(), true);
}

}  // namespace cistern
