#include "transport/stream/server_call.h"

#include <utility>

#include "proto/types.pb.h"

namespace cistern::transport {

// Once the loop has stopped every call is over: what is left (telling so) may run anywhere.
template <typename Fn>
void ServerCallImpl::OnLoop(Fn fn) {
  LoopInbox& inbox = *call_->connection->inbox();
  if (inbox.OnLoopThread()) {
    fn();
    return;
  }
  absl::AnyInvocable<void()> posted(std::move(fn));
  if (!inbox.Post(posted)) posted();
}

ServerCallImpl::~ServerCallImpl() {
  if (!ended_ && !call_->aborted) Fail(absl::InternalError("the request was not answered"));
}

void ServerCallImpl::ReceivePayload(uint64_t bytes, PayloadSink* sink,
                                    absl::AnyInvocable<void(absl::Status)> done) {
  OnLoop([call = call_, bytes, sink, done = std::move(done)]() mutable {
    call->connection->DoReceive(call, bytes, sink, std::move(done));
  });
}

void ServerCallImpl::Reply(FrameType type, std::string meta, bool final,
                           std::unique_ptr<PayloadSource> payload,
                           absl::AnyInvocable<void(absl::Status)> sent) {
  auto item = std::make_unique<OutItem>();
  item->type = type;
  item->meta = std::move(meta);
  item->source = std::move(payload);
  item->sent = std::move(sent);
  const uint64_t bytes = item->source == nullptr ? 0 : item->source->remaining();
  if (final) {
    ended_ = true;
    item->payload_in_frame = bytes <= kInlinePayloadBytes;
    item->final_data = !item->payload_in_frame;
    if (item->payload_in_frame) item->flags = kFlagFinal;
  }
  OnLoop([call = call_, item = std::move(item), final]() mutable {
    call->connection->DoReply(call, std::move(item), final);
  });
}

void ServerCallImpl::SetDeadline(MonoTime deadline) {
  OnLoop([call = call_, deadline] { call->connection->DoSetDeadline(call, deadline); });
}

void ServerCallImpl::Fail(const absl::Status& status) {
  wire::ErrorReply error;
  error.set_code(static_cast<uint32_t>(status.code()));
  error.set_message(std::string(status.message()));
  Reply(FrameType::kError, error.SerializeAsString(), /*final=*/true, nullptr, nullptr);
}

void ServerCallImpl::ProtocolError(const absl::Status& why) {
  ended_ = true;
  OnLoop([call = call_, why] { call->connection->DoProtocolError(why); });
}

void ServerCallImpl::OnAbort(absl::AnyInvocable<void(absl::Status)> fn) {
  OnLoop([call = call_, fn = std::move(fn)]() mutable {
    call->connection->DoOnAbort(call, std::move(fn));
  });
}

void ServerCallImpl::Post(absl::AnyInvocable<void()> fn) { call_->connection->inbox()->Post(fn); }

}  // namespace cistern::transport
