#include "transport/call_meter.h"

#include <algorithm>
#include <utility>

namespace cistern::transport {

// Forwards everything. The end is noted once: when the payload of the answer has left if there is
// one, else with the final answer, else when the handler lets go of the call.
class CallMeter::MeteredCall final : public ServerCall {
 public:
  MeteredCall(CallMeter* meter, size_t kind, std::unique_ptr<ServerCall> call)
      : meter_(*meter), kind_(kind), received_at_(call->received_at()), call_(std::move(call)) {}
  ~MeteredCall() override {
    const bool aborted = call_->aborted();
    call_.reset();  // answers what was not answered
    if (!noted_) {
      Note(aborted ? absl::StatusCode::kCancelled : absl::StatusCode::kInternal);
    }
  }

  FrameType type() const override { return call_->type(); }
  std::string_view meta() const override { return call_->meta(); }
  MonoTime received_at() const override { return received_at_; }
  ServerConnection& connection() override { return call_->connection(); }
  uint64_t inline_payload_bytes() const override { return call_->inline_payload_bytes(); }
  void ReceivePayload(uint64_t bytes, PayloadSink* sink,
                      absl::AnyInvocable<void(absl::Status)> done) override {
    call_->ReceivePayload(bytes, sink, std::move(done));
  }
  void Reply(FrameType type, std::string meta, bool final, std::unique_ptr<PayloadSource> payload,
             absl::AnyInvocable<void(absl::Status)> sent) override {
    if (payload != nullptr && !noted_) {
      noted_ = true;
      // This object may be gone by then; the meter is not.
      sent = [meter = &meter_, kind = kind_, received_at = received_at_,
              sent = std::move(sent)](absl::Status status) mutable {
        if (sent != nullptr) sent(status);
        meter->End(kind, status.code(), received_at);
      };
    }
    call_->Reply(type, std::move(meta), final, std::move(payload), std::move(sent));
    if (final && !noted_) {
      // Nobody hears the answer of a call that has ended from outside.
      Note(call_->aborted() ? absl::StatusCode::kCancelled : absl::StatusCode::kOk);
    }
  }
  void SetDeadline(MonoTime deadline) override { call_->SetDeadline(deadline); }
  void Fail(const absl::Status& status) override {
    call_->Fail(status);
    if (!noted_) Note(status.code());
  }
  void ProtocolError(const absl::Status& why) override {
    call_->ProtocolError(why);
    if (!noted_) Note(absl::StatusCode::kInvalidArgument);
  }
  void OnAbort(absl::AnyInvocable<void(absl::Status)> fn) override {
    call_->OnAbort(std::move(fn));
  }
  bool aborted() const override { return call_->aborted(); }
  void Post(absl::AnyInvocable<void()> fn) override { call_->Post(std::move(fn)); }

 private:
  void Note(absl::StatusCode code) {
    noted_ = true;
    meter_.End(kind_, code, received_at_);
  }

  CallMeter& meter_;
  const size_t kind_;
  const MonoTime received_at_;
  std::unique_ptr<ServerCall> call_;
  bool noted_ = false;
};

CallMeter::CallMeter(std::vector<CallName> names, Clock& clock)
    : clock_(clock), names_(std::move(names)) {
  kind_of_type_.fill(static_cast<uint8_t>(names_.size()));
  for (size_t i = 0; i < names_.size(); ++i) {
    kind_of_type_[static_cast<uint8_t>(names_[i].type)] = static_cast<uint8_t>(i);
  }
  names_.push_back({FrameType{}, "other"});
  seconds_ = std::vector<std::array<LatencyHistogram, kCodes>>(names_.size());
}

size_t CallMeter::KindOf(FrameType type) const { return kind_of_type_[static_cast<uint8_t>(type)]; }

void CallMeter::OnRequest(std::unique_ptr<ServerCall> call) {
  // Counted before the look at `closed_`: either WaitIdle sees this call, or it sees that the
  // server is closed.
  in_progress_.fetch_add(1, std::memory_order_seq_cst);
  const size_t kind = KindOf(call->type());
  auto metered = std::make_unique<MeteredCall>(this, kind, std::move(call));
  if (closed_.load(std::memory_order_seq_cst)) {
    turned_away_.fetch_add(1, std::memory_order_relaxed);
    metered->Fail(absl::UnavailableError("the server is stopping"));
    return;
  }
  handler_->OnRequest(std::move(metered));
}

void CallMeter::End(size_t kind, absl::StatusCode code, MonoTime received_at) {
  const size_t c = std::min<size_t>(static_cast<size_t>(code), kCodes - 1);
  seconds_[kind][c].Count(clock_.Mono() - received_at);
  if (in_progress_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
      closed_.load(std::memory_order_seq_cst)) {
    MutexLock lock(mutex_);
    idle_.NotifyAll();
  }
}

void CallMeter::Close() { closed_.store(true, std::memory_order_seq_cst); }

uint64_t CallMeter::WaitIdle(absl::Duration timeout) {
  const MonoTime until = clock_.Mono() + timeout;
  MutexLock lock(mutex_);
  while (in_progress_.load(std::memory_order_seq_cst) != 0 && !hurry_) {
    const absl::Duration left = until - clock_.Mono();
    if (left <= absl::ZeroDuration()) break;
    idle_.WaitFor(mutex_, left);
  }
  return in_progress_.load(std::memory_order_seq_cst);
}

void CallMeter::Hurry() {
  MutexLock lock(mutex_);
  hurry_ = true;
  idle_.NotifyAll();
}

std::vector<CallMeter::Series> CallMeter::Read() const {
  std::vector<Series> out;
  for (size_t kind = 0; kind < names_.size(); ++kind) {
    for (size_t c = 0; c < kCodes; ++c) {
      Series series{names_[kind].name, static_cast<absl::StatusCode>(c), seconds_[kind][c].Read()};
      if (c == 0 || series.seconds.total() != 0) out.push_back(std::move(series));
    }
  }
  return out;
}

}  // namespace cistern::transport
