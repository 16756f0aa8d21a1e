// One connection of a channel over stream sockets (tcp, shm): the calls given to it, and the socket
// that comes and goes.
//
//   idle -> (resolving) -> connecting -> handshake -> up -> idle
//               any failure -> backoff -> connecting
//
// A call is given to a lane for good; while there is no connection it waits in the lane. Sockets
// are made and broken by the poller only (see Driver); a thread that starts a call writes what the
// socket takes and leaves the rest.
#ifndef CISTERN_TRANSPORT_STREAM_LANE_H_
#define CISTERN_TRANSPORT_STREAM_LANE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "transport/channel.h"
#include "transport/driver.h"
#include "transport/frame_reader.h"
#include "transport/handshake.h"
#include "transport/send_queue.h"
#include "transport/stream/link.h"
#include "transport/stream/socket.h"
#include "transport/stream/stream_channel.h"

namespace cistern::transport {

// A started call. The lane owns it until its OnDone has run.
struct LaneCall : OutStream {
  LaneCall(CallSpec s, CallHandler* h, std::shared_ptr<GroupState> g)
      : OutStream(0), spec(std::move(s)), handler(h), group(std::move(g)) {}
  CallSpec spec;
  CallHandler* const handler;
  const std::shared_ptr<GroupState> group;
  uint64_t expected_bytes = 0;
  bool pushed = false;  // in the send queue of the present connection, or sent on it
  PayloadSink* sink = nullptr;
  bool final_seen = false;
  // Its end is decided; it waits for a frame under way to leave, or for the answer to its Cancel.
  std::optional<absl::Status> end;
  bool awaits_cancel_done = false;
  MonoTime grace = MonoTime::Infinite();
};

// Request ids from here on are those of preambles.
inline constexpr uint64_t kPreambleIds = uint64_t{1} << 63;

// What the lanes of a channel share. Thread-safe.
class ChannelShared {
 public:
  explicit ChannelShared(const StreamChannelOptions& o) : options(o) {}
  const StreamChannelOptions options;
  std::atomic<uint64_t> connections{0};
  std::atomic<uint64_t> reconnects{0};
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<bool> abandoned{false};

  void SetPeer(const PeerInfo& peer);
  PeerInfo peer() const;
  void SetError(const absl::Status& status);
  absl::Status last_error() const;
  std::string Address() const { return options.wire->address(); }

 private:
  mutable Mutex mutex_;
  PeerInfo peer_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
};

// Public methods are thread-safe; everything else is the strand's.
class Lane final : public Driver, private FrameReceiver {
 public:
  Lane(IoThread* io, std::shared_ptr<ChannelShared> shared, bool small);
  ~Lane() override;

  void StartCall(std::unique_ptr<LaneCall> call);
  void AddPreamble(Channel::Preamble preamble);
  void CancelGroup(const GroupState* group) override;
  // Closes for good: every call ends with `status` before this returns.
  void Shutdown(const absl::Status& status);
  // In a fork child: closes the descriptor and nothing else.
  void AbandonAfterFork();
  // For choosing a lane.
  uint64_t load() const { return load_.load(std::memory_order_relaxed); }

 private:
  enum class State { kIdle, kResolving, kConnecting, kHandshake, kUp, kBackoff, kClosed };

  // Driver
  void OnSubmitted() override;
  void OnDrive(short revents) override;
  Interest CurrentInterest() override;
  bool HasBackgroundWork() override { return background_calls_ > 0; }
  // FrameReceiver
  bool ReadyForFrame(const FrameHeader&) override { return true; }
  absl::Status OnFrame(const FrameHeader& header, std::string_view meta) override;
  Take PayloadBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out,
                      absl::Status* error) override;
  absl::Status PayloadLanded(size_t bytes) override;
  absl::Status PayloadAt(const char* from, size_t bytes, size_t* taken) override;
  absl::Status OnFrameEnd() override;

  // connection
  void BeginConnecting(MonoTime now);
  void OnResolved(absl::StatusOr<std::vector<SocketAddress>> addresses);
  void ConnectNext(const absl::Status& last);
  void OnConnected();
  absl::Status OnHandshakeFrame(const FrameHeader& header, std::string_view meta);
  absl::Status OnAuthOk(std::string_view meta);
  void OnUp();
  void ConnectFailed(const absl::Status& why);
  void Break();
  void CloseSocket();
  void SetBroken(absl::Status why);
  bool WentStale(MonoTime now);
  bool HasPieces() const;
  bool WaitsForSocket() const;
  void Read();
  void Write();
  // What was taken may have become quiet.
  void FinishQuiet();
  void SendControl(FrameType type, uint64_t id, std::string meta);
  void SendPreamble(size_t index);
  absl::Status OnPreambleAnswer(const FrameHeader& header, std::string_view meta);

  // calls
  void AddCall(std::unique_ptr<LaneCall> call);
  void PushCall(LaneCall* call);
  void PushWaitingCalls();
  absl::Status OnAnswer(LaneCall* call, const FrameHeader& header, std::string_view meta);
  void CancelCall(LaneCall* call, const absl::Status& why);
  void EndCall(LaneCall* call, const absl::Status& status);
  void FinishIfQuiet(LaneCall* call);
  void Finish(LaneCall* call, absl::Status status);
  void FinishItems(std::vector<std::unique_ptr<OutItem>>* items);
  void RunTimers(MonoTime now);
  absl::Status CannotReach() const;

  const std::shared_ptr<ChannelShared> shared_;
  const StreamChannelOptions& options_;
  Clock& clock_;
  const bool small_;
  std::atomic<uint64_t> load_{0};

  State state_ = State::kIdle;
  int fd_ = -1;
  std::unique_ptr<LinkDialer> dialer_;  // of wires without sockets; fd_ is its own, or the link's
  uint64_t connection_id_ = 0;
  std::vector<SocketAddress> addresses_;
  size_t next_address_ = 0;
  MonoTime connect_deadline_ = MonoTime::Infinite();
  MonoTime retry_at_ = MonoTime::Infinite();
  int failures_ = 0;      // in a row, without an answer between them
  bool refused_ = false;  // trying again will not help soon: waiting calls end
  bool ever_up_ = false;
  bool answered_ = false;  // on the present connection
  absl::Status last_failure_;
  std::optional<absl::Status> broken_;
  MonoTime last_used_;
  std::unique_ptr<ClientHandshake> handshake_;
  std::unique_ptr<StreamLink> link_;  // of the present connection, once it is made
  std::unique_ptr<FrameReader> reader_;
  SendQueue queue_;
  bool write_blocked_ = false;
  uint32_t peer_max_meta_bytes_ = 0;
  std::vector<std::unique_ptr<OutStream>> control_;  // of the present connection
  std::vector<Channel::Preamble> preambles_;

  uint64_t next_call_id_ = 1;
  std::unordered_map<uint64_t, std::unique_ptr<LaneCall>> calls_;
  int background_calls_ = 0;
  MonoTime call_timer_ = MonoTime::Infinite();  // no later than the first deadline
  LaneCall* frame_call_ = nullptr;              // whose payload the reader is at; nullptr: discard
  std::vector<iovec> iov_;
  std::vector<std::unique_ptr<OutItem>> finished_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STREAM_LANE_H_
