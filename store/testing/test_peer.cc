#include "store/testing/test_peer.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "transport/tcp/tcp.h"

namespace cistern::store {
namespace {

class StringSource final : public transport::PayloadSource {
 public:
  explicit StringSource(std::string bytes) : bytes_(std::move(bytes)) {}
  uint64_t remaining() const override { return bytes_.size() - at_; }
  void NextPieces(size_t max_bytes, size_t, std::vector<iovec>* out) override {
    const size_t n = std::min(max_bytes, bytes_.size() - at_);
    out->push_back({bytes_.data() + at_, n});
    at_ += n;
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

class Collector final : public transport::CallHandler, public transport::PayloadSink {
 public:
  explicit Collector(std::string after_ready) : after_ready_(std::move(after_ready)) {}

  absl::Status OnFrame(const Answer& answer, transport::PayloadSink** sink,
                       std::unique_ptr<transport::PayloadSource>* source) override {
    frames.types.push_back(answer.type);
    frames.metas.emplace_back(answer.meta);
    if (answer.payload_bytes != 0) {
      expected_ += answer.payload_bytes;
      frames.payload.resize(expected_);
      *sink = this;
    }
    if (answer.type == transport::FrameType::kPutReady && !after_ready_.empty()) {
      *source = std::make_unique<StringSource>(std::move(after_ready_));
    }
    return absl::OkStatus();
  }
  void OnDone(absl::Status status) override { frames.status = std::move(status); }
  void NextBuffers(size_t max_bytes, size_t, std::vector<iovec>* out) override {
    const size_t n = std::min(max_bytes, frames.payload.size() - landed_);
    if (n != 0) out->push_back({frames.payload.data() + landed_, n});
  }
  absl::Status Landed(size_t bytes) override {
    landed_ += bytes;
    return absl::OkStatus();
  }

  AnswerFrames frames;

 private:
  std::string after_ready_;
  size_t expected_ = 0;
  size_t landed_ = 0;
};

template <typename T>
void Append(std::string* column, T value) {
  column->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

TestPeer::TestPeer(uint16_t port, const std::string& token) {
  auto io = transport::IoContext::Create({});
  CISTERN_CHECK(io.ok());
  io_ = *std::move(io);
  transport::TcpChannelOptions options;
  options.host = "127.0.0.1";
  options.port = port;
  options.identity.kind = wire::PEER_CLIENT;
  options.identity.token = token;
  options.connections = 1;
  options.separate_small_lane = false;  // so that refs are the connection's
  channel_ = transport::MakeTcpChannel(io_.get(), options);
}

TestPeer::~TestPeer() = default;

AnswerFrames TestPeer::Call(transport::FrameType type, const std::string& meta, std::string payload,
                            std::string after_ready, absl::Duration deadline) {
  Collector collector(std::move(after_ready));
  transport::CallGroup group;
  transport::CallSpec spec;
  spec.type = type;
  spec.meta = meta;
  if (!payload.empty()) spec.payload = std::make_unique<StringSource>(std::move(payload));
  spec.deadline = Clock::Real().Mono() + deadline;
  channel_->Start(std::move(spec), &collector, &group);
  io_->Wait(group);
  return std::move(collector.frames);
}

absl::StatusOr<uint32_t> TestPeer::Bind(const std::string& name, const std::string& fingerprint,
                                        const wire::NamespaceOptions& options) {
  wire::BindNamespace bind;
  bind.set_name(name);
  bind.set_fingerprint(fingerprint);
  *bind.mutable_options() = options;
  bind.set_id(std::string(DeriveNamespaceId("", name, fingerprint).view()));
  bind.set_deadline_ms(5'000);
  const AnswerFrames answer = Call(transport::FrameType::kBindNamespace, bind.SerializeAsString());
  if (!answer.status.ok()) return answer.status;
  wire::NamespaceBound bound;
  if (!bound.ParseFromString(answer.metas.at(0))) return absl::InternalError("bad answer");
  return bound.ns_ref();
}

std::string TestPeer::Stream(const TestChunk& chunk, bool wrong_digest) {
  const auto layout = PartLayout::Make(chunk.bytes.size(), 0);
  CISTERN_CHECK(layout.ok());
  std::string out = chunk.bytes;
  for (uint32_t p = 0; p < layout->count; ++p) {
    PartDigest digest = DigestOf(chunk.bytes.data() + layout->PartBegin(p), layout->PartBytes(p));
    if (wrong_digest && p + 1 == layout->count) digest ^= 1;
    Append(&out, digest);
  }
  return out;
}

wire::PutRequest TestPeer::PutMeta(uint32_t ns_ref, const std::vector<TestChunk>& chunks,
                                   bool in_line) {
  wire::PutRequest request;
  request.set_ns_ref(ns_ref);
  for (const TestChunk& chunk : chunks) {
    request.mutable_ids()->append(chunk.id.view());
    Append<uint16_t>(request.mutable_shards(), chunk.shard);
    Append<uint32_t>(request.mutable_lengths(), static_cast<uint32_t>(chunk.bytes.size()));
  }
  request.set_digest(wire::DIGEST_PRODUCER);
  request.set_deadline_ms(20'000);
  request.set_payload_inline(in_line);
  return request;
}

wire::PutDone TestPeer::Put(uint32_t ns_ref, const std::vector<TestChunk>& chunks, bool in_line,
                            bool wrong_digest) {
  std::string stream;
  for (const TestChunk& chunk : chunks) stream += Stream(chunk, wrong_digest);
  const std::string meta = PutMeta(ns_ref, chunks, in_line).SerializeAsString();
  const AnswerFrames answer = in_line
                                  ? Call(transport::FrameType::kPut, meta, std::move(stream))
                                  : Call(transport::FrameType::kPut, meta, {}, std::move(stream));
  wire::PutDone done;
  if (!answer.status.ok()) {
    done.set_message(answer.status.ToString());
  } else if (!done.ParseFromString(answer.metas.back())) {
    done.set_message("malformed PutDone");
  }
  return done;
}

TestPeer::Got TestPeer::Get(uint32_t ns_ref, const std::vector<TestChunk>& like) {
  wire::GetRequest request;
  request.set_ns_ref(ns_ref);
  for (const TestChunk& chunk : like) {
    request.mutable_ids()->append(chunk.id.view());
    Append<uint16_t>(request.mutable_shards(), chunk.shard);
    Append<uint32_t>(request.mutable_target_lengths(), static_cast<uint32_t>(chunk.bytes.size()));
  }
  request.set_deadline_ms(20'000);
  AnswerFrames answer = Call(transport::FrameType::kGet, request.SerializeAsString());
  Got got;
  got.status = answer.status;
  got.payload = std::move(answer.payload);
  if (got.status.ok() && !got.head.ParseFromString(answer.metas.at(0))) {
    got.status = absl::InternalError("malformed GetHead");
  }
  return got;
}

}  // namespace cistern::store
