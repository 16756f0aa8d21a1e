// Counts and times the calls of a RequestHandler, over every wire alike, and lets a server end in
// good order: no new calls, those in progress first.
#ifndef CISTERN_TRANSPORT_CALL_METER_H_
#define CISTERN_TRANSPORT_CALL_METER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/latency_histogram.h"
#include "base/mutex.h"
#include "transport/server.h"

namespace cistern::transport {

// What metrics call the requests of one type. Types without a name count as "other".
struct CallName {
  FrameType type;
  const char* name;  // lives as long as the process
};

// Stands between a wire and its handler: what the handler gets is the wire's call in a wrapper that
// notes its end. A call takes from its arrival until its answer, payload included, was handed to
// the wire's peer; its code is what it was failed with, OK (whatever became of the single chunks),
// or Cancelled when it ended from outside.
//
// Costs a small allocation, one look at the clock and a few relaxed additions a call. Thread-safe.
// Must outlive every call that it gave to the handler, and so whatever may keep one.
class CallMeter final : public RequestHandler {
 public:
  CallMeter(std::vector<CallName> names, Clock& clock);
  // Before the first request. Borrowed.
  void SetHandler(RequestHandler* handler) { handler_ = handler; }

  void OnRequest(std::unique_ptr<ServerCall> call) override;
  void OnConnected(ServerConnection& connection) override { handler_->OnConnected(connection); }
  void OnDisconnected(ServerConnection& connection) override {
    handler_->OnDisconnected(connection);
  }

  // From now on a request is answered Unavailable and does not reach the handler.
  void Close();
  // After Close(): waits until no call is in progress, `timeout` has passed, or Hurry() was called.
  // Returns how many calls are left.
  uint64_t WaitIdle(absl::Duration timeout);
  // Ends WaitIdle, now and later. Any thread.
  void Hurry();

  uint64_t in_progress() const { return in_progress_.load(std::memory_order_relaxed); }
  // Requests that Close() turned away.
  uint64_t turned_away() const { return turned_away_.load(std::memory_order_relaxed); }

  struct Series {
    const char* call;
    absl::StatusCode code;
    LatencyHistogram::Counts seconds;
  };
  // One for each call and code that has been; OK is there for every call from the start.
  std::vector<Series> Read() const;

 private:
  class MeteredCall;
  static constexpr size_t kCodes = 17;  // absl's canonical ones

  size_t KindOf(FrameType type) const;
  void End(size_t kind, absl::StatusCode code, MonoTime received_at);

  RequestHandler* handler_ = nullptr;
  Clock& clock_;
  std::vector<CallName> names_;                 // the last is "other"
  std::array<uint8_t, 256> kind_of_type_ = {};  // position in names_
  std::vector<std::array<LatencyHistogram, kCodes>> seconds_;
  std::atomic<uint64_t> in_progress_{0};
  std::atomic<uint64_t> turned_away_{0};
  std::atomic<bool> closed_{false};
  Mutex mutex_;
  CondVar idle_;
  bool hurry_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_CALL_METER_H_
