#include "transport/rdma/raw_rdma_peer.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "proto/handshake.pb.h"
#include "transport/handshake.h"
#include "transport/rdma/verbs.h"
#include "transport/stream/socket.h"

namespace cistern::transport::rdma {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr absl::Duration kRest = absl::Microseconds(200);
constexpr int kResolveMs = 300;
constexpr int kMostResolves = 6;

absl::Status Failed(const char* call) { return ErrnoStatus(errno, call); }

}  // namespace

std::string RecordBytes(RecordKind kind, uint32_t bytes, uint32_t key, uint64_t address) {
  uint8_t out[kRecordBytes];
  EncodeRecord({kind, bytes, key, address}, out);
  return std::string(reinterpret_cast<const char*>(out), sizeof(out));
}

absl::StatusOr<std::unique_ptr<RawRdmaPeer>> RawRdmaPeer::Connect(std::shared_ptr<Host> host,
                                                                  const std::string& address,
                                                                  uint16_t port,
                                                                  std::string private_data) {
  std::unique_ptr<RawRdmaPeer> peer(new RawRdmaPeer(std::move(host)));
  CISTERN_RETURN_IF_ERROR(peer->Dial(address, port, std::move(private_data)));
  return peer;
}

RawRdmaPeer::~RawRdmaPeer() { endpoint_.reset(); }

void RawRdmaPeer::Disconnect() {
  const auto verbs = LoadVerbs();
  if (verbs.ok() && id_ != nullptr) (*verbs)->cm.disconnect(id_.get());
}

absl::StatusOr<CmEvent> RawRdmaPeer::NextEvent(absl::Duration patience) {
  const MonoTime until = Clock::Real().Mono() + patience;
  for (;;) {
    auto event = NextCmEvent(channel_.get());
    if (event.ok()) return event;
    if (Clock::Real().Mono() >= until) return absl::DeadlineExceededError("no event of rdma_cm");
    Clock::Real().SleepFor(kRest);
  }
}

absl::Status RawRdmaPeer::Dial(const std::string& address, uint16_t port,
                               std::string private_data) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  CISTERN_ASSIGN_OR_RETURN(channel_, CreateCmChannel());
  fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  CISTERN_ASSIGN_OR_RETURN(auto addresses, ResolveHost(address, port, /*literal_only=*/true));
  for (int i = 0;; ++i) {
    id_.reset();
    CISTERN_ASSIGN_OR_RETURN(id_, CreateCmId(channel_.get(), nullptr));
    if (verbs->cm.resolve_addr(id_.get(), nullptr,
                               reinterpret_cast<sockaddr*>(&addresses.front().storage),
                               kResolveMs) != 0) {
      return Failed("rdma_resolve_addr");
    }
    CISTERN_ASSIGN_OR_RETURN(const CmEvent event, NextEvent(kPatience));
    if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED) break;
    if (i + 1 == kMostResolves) return absl::UnavailableError("no RDMA port has an answer");
  }
  if (verbs->cm.resolve_route(id_.get(), 1000) != 0) return Failed("rdma_resolve_route");
  {
    CISTERN_ASSIGN_OR_RETURN(const CmEvent event, NextEvent(kPatience));
    if (event->event != RDMA_CM_EVENT_ROUTE_RESOLVED) return absl::UnavailableError("no route");
  }
  device_ = host_->Find(id_->verbs);
  if (device_ == nullptr) return absl::UnavailableError("the device is not in use");
  EndpointOptions options;
  options.host = host_;
  options.device = device_;
  CISTERN_ASSIGN_OR_RETURN(options.sends, MessageBuffers::Create(device_->domain.get(), kReceives));
  options.remote_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  options.forced_reads = 1;
  CISTERN_ASSIGN_OR_RETURN(endpoint_, Endpoint::Create(options));
  CISTERN_RETURN_IF_ERROR(endpoint_->Advance(id_.get(), IBV_QPS_INIT));
  if (private_data.empty()) {
    Greeting greeting;
    greeting.reads = static_cast<uint16_t>(device_->max_reads);
    private_data.resize(kGreetingBytes);
    EncodeGreeting(greeting, reinterpret_cast<uint8_t*>(private_data.data()));
  }
  rdma_conn_param parameters = {};
  parameters.private_data = private_data.data();
  parameters.private_data_len = static_cast<uint8_t>(private_data.size());
  parameters.responder_resources = static_cast<uint8_t>(device_->max_reads);
  parameters.initiator_depth = static_cast<uint8_t>(device_->max_reads);
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 7;
  parameters.qp_num = endpoint_->number();
  if (verbs->cm.connect(id_.get(), &parameters) != 0) return Failed("rdma_connect");
  CISTERN_ASSIGN_OR_RETURN(const CmEvent event, NextEvent(kPatience));
  if (event->event != RDMA_CM_EVENT_CONNECT_RESPONSE) {
    const auto* text = static_cast<const char*>(event->param.conn.private_data);
    return absl::PermissionDeniedError(absl::StrCat(
        "not connected: ", verbs->cm.event_str(event->event), " ",
        text == nullptr ? std::string()
                        : std::string(text, strnlen(text, event->param.conn.private_data_len))));
  }
  CISTERN_RETURN_IF_ERROR(endpoint_->Advance(id_.get(), IBV_QPS_RTR));
  CISTERN_RETURN_IF_ERROR(endpoint_->Advance(id_.get(), IBV_QPS_RTS));
  return verbs->cm.establish(id_.get()) == 0 ? absl::OkStatus() : Failed("rdma_establish");
}

absl::Status RawRdmaPeer::OnMessage(absl::Span<const uint8_t> message) {
  moved_ = true;
  CISTERN_ASSIGN_OR_RETURN(const MessageHeader header,
                           DecodeMessageHeader(message.data(), message.size()));
  stream_.append(reinterpret_cast<const char*>(message.data()) + kMessageHeaderBytes,
                 header.stream_bytes);
  ++(header.stream_bytes > 0 ? stream_return_ : note_return_);
  const uint8_t* at = message.data() + kMessageHeaderBytes + header.stream_bytes;
  for (uint16_t i = 0; i < header.notes; ++i, at += kNoteBytes) {
    CISTERN_ASSIGN_OR_RETURN(const Note note, DecodeNote(at));
    notes_.push_back(note);
  }
  return absl::OkStatus();
}

bool RawRdmaPeer::Look() {
  if (!failure_.ok()) return false;
  moved_ = false;
  failure_ = endpoint_->Poll(this);
  for (auto event = NextCmEvent(channel_.get()); event.ok(); event = NextCmEvent(channel_.get())) {
    if ((*event)->event != RDMA_CM_EVENT_ESTABLISHED && failure_.ok()) {
      failure_ = absl::UnavailableError("the server has gone");
    }
  }
  if (!moved_ && failure_.ok()) Clock::Real().SleepFor(kRest);
  return failure_.ok();
}

bool RawRdmaPeer::Send(std::string_view bytes) {
  const MonoTime until = Clock::Real().Mono() + kPatience;
  uint32_t slot = 0;
  while (endpoint_->messages_in_flight() >= kReceives || !endpoint_->TakeBuffer(&slot)) {
    if (!Look() || Clock::Real().Mono() >= until) return false;
  }
  const size_t n = std::min<size_t>(bytes.size(), kMessageBytes);
  std::memcpy(endpoint_->buffer(slot), bytes.data(), n);
  endpoint_->QueueMessage(slot, static_cast<uint32_t>(n));
  const absl::Status posted = endpoint_->Post(/*say=*/true);
  if (!posted.ok() && failure_.ok()) failure_ = posted;
  return failure_.ok();
}

bool RawRdmaPeer::SendMessage(std::string_view stream, const std::vector<Note>& notes,
                              uint16_t stream_credits, uint16_t note_credits) {
  std::string message(kMessageHeaderBytes, '\0');
  MessageHeader header;
  header.stream_bytes = static_cast<uint32_t>(stream.size());
  header.notes = static_cast<uint16_t>(notes.size());
  header.stream_credits =
      static_cast<uint16_t>(stream_credits + std::exchange(stream_return_, uint16_t{0}));
  header.note_credits =
      static_cast<uint16_t>(note_credits + std::exchange(note_return_, uint16_t{0}));
  EncodeMessageHeader(header, reinterpret_cast<uint8_t*>(message.data()));
  message.append(stream);
  for (const Note& note : notes) {
    uint8_t bytes[kNoteBytes];
    EncodeNote(note, bytes);
    message.append(reinterpret_cast<const char*>(bytes), sizeof(bytes));
  }
  return Send(message);
}

bool RawRdmaPeer::SendFrame(FrameType type, uint64_t id, std::string_view meta,
                            uint64_t payload_bytes, std::string_view records) {
  FrameHeader header;
  header.type = type;
  header.request_id = id;
  header.meta_bytes = static_cast<uint32_t>(meta.size());
  header.meta_crc = Crc32c(meta.data(), meta.size());
  header.payload_bytes = payload_bytes;
  std::string bytes(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, reinterpret_cast<uint8_t*>(bytes.data()));
  return SendMessage(bytes.append(meta).append(records));
}

std::optional<RawRdmaPeer::Frame> RawRdmaPeer::Receive(absl::Duration patience) {
  const MonoTime until = Clock::Real().Mono() + patience;
  for (;;) {
    if (stream_.size() >= kFrameHeaderBytes) {
      const auto header = DecodeFrameHeader(reinterpret_cast<const uint8_t*>(stream_.data()),
                                            kMaxMetaBytesTcp, uint64_t{1} << 40);
      if (!header.ok()) return std::nullopt;
      if (stream_.size() >= kFrameHeaderBytes + header->meta_bytes) {
        Frame frame{*header, stream_.substr(kFrameHeaderBytes, header->meta_bytes)};
        stream_.erase(0, kFrameHeaderBytes + header->meta_bytes);
        return frame;
      }
    }
    if (!Look() || Clock::Real().Mono() >= until) return std::nullopt;
  }
}

std::optional<Record> RawRdmaPeer::TakeRecord(absl::Duration patience) {
  const MonoTime until = Clock::Real().Mono() + patience;
  while (stream_.size() < kRecordBytes) {
    if (!Look() || Clock::Real().Mono() >= until) return std::nullopt;
  }
  const auto record = DecodeRecord(reinterpret_cast<const uint8_t*>(stream_.data()));
  if (!record.ok()) return std::nullopt;
  stream_.erase(0, kRecordBytes);
  return *record;
}

absl::Status RawRdmaPeer::Handshake(const LocalIdentity& identity) {
  ClientHandshake handshake(identity, /*expected_peer_id=*/"", /*small_lane=*/false);
  SendFrame(FrameType::kHello, 0, handshake.MakeHello().SerializeAsString());
  std::optional<Frame> frame = Receive();
  wire::HelloAck ack;
  if (!frame.has_value() || frame->header.type != FrameType::kHelloAck ||
      !ack.ParseFromString(frame->meta)) {
    return absl::UnavailableError(absl::StrCat("no HelloAck: ", failure_.message()));
  }
  CISTERN_ASSIGN_OR_RETURN(const wire::Auth auth, handshake.OnHelloAck(ack));
  SendFrame(FrameType::kAuth, 0, auth.SerializeAsString());
  frame = Receive();
  return frame.has_value() && frame->header.type == FrameType::kAuthOk
             ? absl::OkStatus()
             : absl::UnavailableError(absl::StrCat("no AuthOk: ", failure_.message()));
}

absl::Status RawRdmaPeer::Execute(OpKind kind, const ibv_sge& local, uint64_t remote_address,
                                  uint32_t remote_key) {
  const int before = ended_;
  endpoint_->QueueTransfer(kind, {&local, 1}, remote_address, remote_key, local.length);
  CISTERN_RETURN_IF_ERROR(endpoint_->Post(/*say=*/true));
  const MonoTime until = Clock::Real().Mono() + kPatience;
  while (ended_ == before) {
    if (Clock::Real().Mono() >= until) return absl::DeadlineExceededError("no completion");
    if (!Look()) return failure_;
  }
  return absl::OkStatus();
}

bool RawRdmaPeer::WaitClosed(absl::Duration patience) {
  const MonoTime until = Clock::Real().Mono() + patience;
  while (Look()) {
    if (Clock::Real().Mono() >= until) return false;
  }
  return true;
}

}  // namespace cistern::transport::rdma
