// A peer's connection to a stream server.
#ifndef CISTERN_TRANSPORT_STREAM_SERVER_CONNECTION_H_
#define CISTERN_TRANSPORT_STREAM_SERVER_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "transport/frame_reader.h"
#include "transport/handshake.h"
#include "transport/send_queue.h"
#include "transport/server.h"
#include "transport/stream/link.h"
#include "transport/stream/server_loop.h"

namespace cistern::transport {

class ServerConnectionImpl;

// One request being served. Loop thread only, except what is const or atomic. Held by the
// connection until the last frame of the answer has left, and by the handler's ServerCall.
struct ServedCall : OutStream, std::enable_shared_from_this<ServedCall> {
  ServedCall(std::shared_ptr<ServerConnectionImpl> c, uint64_t request_id)
      : OutStream(request_id), connection(std::move(c)) {}
  const std::shared_ptr<ServerConnectionImpl> connection;
  FrameType type{};
  std::string meta;
  MonoTime received_at;
  uint64_t inline_payload_bytes = 0;
  std::atomic<bool> aborted{false};

  bool answered = false;  // a final Reply or Fail was given
  bool over = false;      // nothing may be done for it any more
  bool gone = false;      // the connection has let go of it
  // Its meta and its sources' own memory; given back when it goes.
  uint64_t held_bytes = 0;
  // ReceivePayload in progress.
  PayloadSink* sink = nullptr;
  uint64_t receive_left = 0;
  absl::AnyInvocable<void(absl::Status)> received;
  MonoTime last_progress;
  MonoTime deadline = MonoTime::Infinite();  // the caller's
  absl::AnyInvocable<void(absl::Status)> on_abort;
};

// The state machine: handshake, then frames. Loop thread only, except peer() and id(). Closing is
// never done in the middle of anything: errors mark the connection, the end of its turn closes it.
class ServerConnectionImpl final : public ServerConnection,
                                   private FrameReceiver,
                                   public std::enable_shared_from_this<ServerConnectionImpl> {
 public:
  // `fd` -1: the link has no socket.
  ServerConnectionImpl(ServerLoop* loop, int fd, std::unique_ptr<StreamLink> link,
                       const std::string& address);
  ~ServerConnectionImpl() override;

  const PeerInfo& peer() const override { return peer_; }
  uint64_t id() const override { return id_; }
  void Cut(const absl::Status& why) override;
  int fd() const { return fd_; }
  const std::shared_ptr<LoopInbox>& inbox() const { return inbox_; }

  // --- for the loop ---
  void OnEvents(uint32_t events);
  void OnExtraEvent();
  // Of a link without a socket. LinkCut: from any thread.
  void OnLinkEvent();
  void LinkCut();
  StreamLink* link() const { return link_.get(); }
  // The peer will be told so when it has said Hello, and cut.
  void RefuseAtHello(const absl::Status& why) { refusal_ = why; }
  void Turn();
  void OnTimer();
  void Close(const absl::Status& why);
  bool queued_for_turn = false;
  MonoTime timer_at = MonoTime::Infinite();

  // --- for ServerCallImpl ---
  void DoReply(const std::shared_ptr<ServedCall>& call, std::unique_ptr<OutItem> item, bool final);
  void DoReceive(const std::shared_ptr<ServedCall>& call, uint64_t bytes, PayloadSink* sink,
                 absl::AnyInvocable<void(absl::Status)> done);
  void DoOnAbort(const std::shared_ptr<ServedCall>& call,
                 absl::AnyInvocable<void(absl::Status)> fn);
  void DoSetDeadline(const std::shared_ptr<ServedCall>& call, MonoTime deadline);
  void DoProtocolError(const absl::Status& why);

 private:
  enum class State { kHello, kAuth, kOpen, kClosed };

  // FrameReceiver
  bool ReadyForFrame(const FrameHeader& header) override;
  absl::Status OnFrame(const FrameHeader& header, std::string_view meta) override;
  Take PayloadBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out,
                      absl::Status* error) override;
  absl::Status PayloadLanded(size_t bytes) override;
  absl::Status PayloadAt(const char* from, size_t bytes, size_t* taken) override;
  absl::Status OnFrameEnd() override;

  absl::Status OnHandshakeFrame(const FrameHeader& header, std::string_view meta);
  // Tells why not, then closes.
  void Refuse(const absl::Status& why);
  absl::Status OnAuth(const FrameHeader& header, const wire::Auth& auth);
  absl::Status OnRequestFrame(const FrameHeader& header, std::string_view meta);
  void OnCancel(uint64_t request_id);
  void SendControl(FrameType type, uint64_t request_id, const google::protobuf::MessageLite& meta);
  void Read();
  // One read, or the copying of announced pieces. False: there is nothing more now.
  bool ReadOnce(size_t* moved);
  void CountPieces(uint64_t before, size_t* moved);
  void Write();
  // The begin and the end of a turn.
  void Progress();
  void Flush();
  bool HasOutput() const { return !queue_.empty() || link_->wants_write(); }
  void FinishItems(std::vector<std::unique_ptr<OutItem>>* items, const absl::Status& status);
  void EndReceive(ServedCall* call, const absl::Status& status);
  absl::Status Received(ServedCall* call, size_t bytes, const absl::Status& status);
  void AbortCall(const std::shared_ptr<ServedCall>& call, const absl::Status& status);
  void RemoveCall(ServedCall* call);
  void WantTurn();
  bool OverLimits() const;
  // When the peer has been silent for too long; *stall says which kind of silence it is.
  MonoTime Deadline(bool* stall) const;
  void UpdateTimer();
  void WakeBy(MonoTime when);
  void Fail(const absl::Status& why);

  ServerLoop& loop_;
  const std::shared_ptr<LoopInbox> inbox_;
  RequestHandler& handler_;
  const uint64_t id_;
  int fd_;
  State state_ = State::kHello;
  PeerInfo peer_;
  std::unique_ptr<ServerHandshake> handshake_;
  const std::unique_ptr<StreamLink> link_;
  FrameReader reader_;
  SendQueue queue_;
  OutStream control_{0};
  std::unordered_map<uint64_t, std::shared_ptr<ServedCall>> calls_;
  std::shared_ptr<ServedCall> frame_call_;  // whose payload the reader is at
  uint64_t held_bytes_ = 0;                 // of all calls
  int receiving_ = 0;                       // calls with a ReceivePayload in progress
  uint64_t unquiet_bytes_ = 0;              // at the last look
  bool readable_ = true;
  bool writable_ = true;
  bool peer_closed_ = false;
  bool connected_ = false;  // OnConnected was called
  bool draining_ = false;   // close when everything has been written
  std::optional<absl::Status> broken_;
  std::optional<absl::Status> refusal_;
  const MonoTime accepted_at_;
  MonoTime last_read_;
  MonoTime last_write_;
  std::vector<iovec> iov_;
  std::vector<std::unique_ptr<OutItem>> finished_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STREAM_SERVER_CONNECTION_H_
