// The handler's end of a request to a stream server.
#ifndef CISTERN_TRANSPORT_STREAM_SERVER_CALL_H_
#define CISTERN_TRANSPORT_STREAM_SERVER_CALL_H_

#include <memory>
#include <string>
#include <string_view>

#include "transport/server.h"
#include "transport/stream/server_connection.h"

namespace cistern::transport {

// Used by one thread at a time. On the loop thread it acts at once; from others it posts.
class ServerCallImpl final : public ServerCall {
 public:
  explicit ServerCallImpl(std::shared_ptr<ServedCall> call) : call_(std::move(call)) {}
  ~ServerCallImpl() override;

  FrameType type() const override { return call_->type; }
  std::string_view meta() const override { return call_->meta; }
  MonoTime received_at() const override { return call_->received_at; }
  ServerConnection& connection() override { return *call_->connection; }
  uint64_t inline_payload_bytes() const override { return call_->inline_payload_bytes; }
  void ReceivePayload(uint64_t bytes, PayloadSink* sink,
                      absl::AnyInvocable<void(absl::Status)> done) override;
  void Reply(FrameType type, std::string meta, bool final, std::unique_ptr<PayloadSource> payload,
             absl::AnyInvocable<void(absl::Status)> sent) override;
  void SetDeadline(MonoTime deadline) override;
  void Fail(const absl::Status& status) override;
  void ProtocolError(const absl::Status& why) override;
  void OnAbort(absl::AnyInvocable<void(absl::Status)> fn) override;
  bool aborted() const override { return call_->aborted; }
  void Post(absl::AnyInvocable<void()> fn) override;

 private:
  template <typename Fn>
  void OnLoop(Fn fn);
  const std::shared_ptr<ServedCall> call_;
  bool ended_ = false;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STREAM_SERVER_CALL_H_
