#include "transport/fallback_channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "base/mutex.h"
#include "transport/group_state.h"

namespace cistern::transport {
namespace {

class FallbackChannel final : public Channel {
 public:
  FallbackChannel(std::unique_ptr<Channel> better, std::unique_ptr<Channel> other,
                  const FallbackOptions& options)
      : options_(options), better_(std::move(better)), other_(std::move(other)) {}

  ~FallbackChannel() override {
    {
      MutexLock lock(mutex_);
      closing_ = true;  // what waits for a probe ends with it
    }
    better_.reset();
    other_.reset();
  }

  void Start(CallSpec spec, CallHandler* handler, CallGroup* group) override {
    bool probe = false;
    const Choice choice = Where(spec.small, &probe);
    if (probe) BackgroundProbe::Run(this);
    switch (choice) {
      case Choice::kBetter:
      case Choice::kBetterIfSmall:
        return better_->Start(std::move(spec), handler, group);
      case Choice::kOther:
        return other_->Start(std::move(spec), handler, group);
      case Choice::kNone:
        return Probe::Run(this, std::move(spec), handler, group);
    }
  }

  void AddPreamble(Preamble preamble) override {
    better_->AddPreamble(preamble);
    other_->AddPreamble(std::move(preamble));
  }
  PeerInfo peer() const override { return Present().peer(); }
  absl::Status last_error() const override { return Present().last_error(); }
  ChannelStats stats() const override {
    ChannelStats sum = better_->stats();
    const ChannelStats other = other_->stats();
    sum.connections += other.connections;
    sum.reconnects += other.reconnects;
    sum.bytes_in += other.bytes_in;
    sum.bytes_out += other.bytes_out;
    sum.inflight_bytes += other.inflight_bytes;
    return sum;
  }
  void AbandonAfterFork() override {
    better_->AbandonAfterFork();
    other_->AbandonAfterFork();
  }

 private:
  // kBetterIfSmall: of the connections for payload nothing is known yet. They need more, which the
  // peer or this process may not have: to have answered a small call says nothing of them.
  enum class Choice { kNone, kBetter, kBetterIfSmall, kOther };

  // Holds a call until it is known where it goes. Owns itself.
  class Probe final : public CallHandler {
   public:
    static void Run(FallbackChannel* channel, CallSpec spec, CallHandler* handler,
                    CallGroup* group) {
      if (spec.deadline == MonoTime::Infinite()) {
        spec.payload.reset();
        return handler->OnDone(absl::InvalidArgumentError("a call needs a deadline"));
      }
      CallSpec ping;
      ping.type = FrameType::kPing;
      ping.deadline =
          std::min(spec.deadline, channel->options_.clock->Mono() + channel->options_.patience);
      ping.small = spec.small && !channel->PayloadFailed();
      ping.fail_fast = true;
      auto* probe = new Probe(channel, ping.small, std::move(spec), handler, group);
      channel->better_->Start(std::move(ping), probe, group);
    }

   private:
    Probe(FallbackChannel* channel, bool small, CallSpec spec, CallHandler* handler,
          CallGroup* group)
        : channel_(*channel),
          small_(small),
          spec_(std::move(spec)),
          handler_(handler),
          group_(group),
          group_state_(GroupState::Of(*group)),
          cancels_(group_state_->cancels()) {}

    absl::Status OnFrame(const Answer&, PayloadSink**, std::unique_ptr<PayloadSource>*) override {
      return absl::OkStatus();
    }
    void OnDone(absl::Status status) override {
      const std::unique_ptr<Probe> self(this);
      // Whoever says that it does not know the request has answered.
      if (status.code() == absl::StatusCode::kUnimplemented) status = absl::OkStatus();
      const bool over = channel_.options_.clock->Mono() >= spec_.deadline;
      if (Cancelled()) status = absl::CancelledError("cancelled by the caller");
      if (status.code() == absl::StatusCode::kCancelled || (!status.ok() && over) ||
          !channel_.Decide(small_, status)) {
        // Of the call itself no byte has left.
        status.SetPayload(kNeverSentUrl, absl::Cord());
        spec_.payload.reset();
        return handler_->OnDone(std::move(status));
      }
      // Still inside this call's end: the group has one pending throughout.
      Channel& chosen = status.ok() ? *channel_.better_ : *channel_.other_;
      chosen.Start(std::move(spec_), handler_, group_);
      // A cancel that came since the look above may have found the call on neither channel. (The
      // group may be gone by now; what it shares with its calls is not.)
      if (Cancelled()) group_state_->Cancel();
    }
    bool Cancelled() const { return group_state_->cancels() != cancels_; }

    FallbackChannel& channel_;
    const bool small_;  // what was asked, which is not always what the call is
    CallSpec spec_;
    CallHandler* const handler_;
    CallGroup* const group_;
    const std::shared_ptr<GroupState> group_state_;
    const uint64_t cancels_;  // before the probe
  };

  // Asks while calls go on. Owns itself.
  class BackgroundProbe final : public CallHandler {
   public:
    static void Run(FallbackChannel* channel) {
      auto* probe = new BackgroundProbe(channel);
      CallSpec ping;
      ping.type = FrameType::kPing;
      ping.deadline = channel->options_.clock->Mono() + channel->options_.patience;
      ping.fail_fast = true;
      channel->better_->Start(std::move(ping), probe, &probe->group_);
    }

   private:
    explicit BackgroundProbe(FallbackChannel* channel)
        : channel_(*channel), group_([this] { delete this; }) {}

    absl::Status OnFrame(const Answer&, PayloadSink**, std::unique_ptr<PayloadSource>*) override {
      return absl::OkStatus();
    }
    void OnDone(absl::Status status) override {
      if (status.code() == absl::StatusCode::kUnimplemented) status = absl::OkStatus();
      channel_.Decide(/*small=*/false, status);
    }

    FallbackChannel& channel_;
    CallGroup group_;
  };

  // *probe: the caller has to ask in the background.
  Choice Where(bool small, bool* probe) {
    MutexLock lock(mutex_);
    if (choice_ == Choice::kOther && options_.clock->Mono() >= retry_at_) choice_ = Choice::kNone;
    // Cut off, and not connected again since: the next call finds out.
    if (choice_ != Choice::kOther && !better_->last_error().ok()) choice_ = Choice::kNone;
    if (options_.in_background && choice_ == Choice::kNone) {
      *probe = !probing_;
      probing_ = true;
      return Choice::kOther;
    }
    return choice_ == Choice::kBetterIfSmall && !small ? Choice::kNone : choice_;
  }

  bool PayloadFailed() const {
    MutexLock lock(mutex_);
    return payload_failed_;
  }

  // False: the channel is being closed.
  bool Decide(bool small, const absl::Status& probed) {
    bool news = false;
    {
      MutexLock lock(mutex_);
      probing_ = false;
      if (closing_) return false;
      // A call for payload that was decided meanwhile knows more.
      if (probed.ok() && small && choice_ != Choice::kNone) return true;
      if (!small) payload_failed_ = !probed.ok();
      choice_ = !probed.ok() ? Choice::kOther : small ? Choice::kBetterIfSmall : Choice::kBetter;
      retry_at_ = options_.clock->Mono() + options_.retry_after;
      news = !told_ || probed.code() != last_.code() || probed.message() != last_.message();
      told_ = true;
      last_ = probed;
    }
    if (news) options_.on_choice(probed);
    return true;
  }

  const Channel& Present() const {
    MutexLock lock(mutex_);
    const bool other =
        choice_ == Choice::kOther || (choice_ == Choice::kNone && options_.in_background);
    return other ? *other_ : *better_;
  }

  const FallbackOptions options_;
  std::unique_ptr<Channel> better_;
  std::unique_ptr<Channel> other_;
  mutable Mutex mutex_;
  Choice choice_ ABSL_GUARDED_BY(mutex_) = Choice::kNone;
  MonoTime retry_at_ ABSL_GUARDED_BY(mutex_);
  // When payload was last asked about: then small calls ask for it, or the choice would go to and
  // fro.
  bool payload_failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool probing_ ABSL_GUARDED_BY(mutex_) = false;  // in the background
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Channel> MakeFallbackChannel(std::unique_ptr<Channel> better,
                                             std::unique_ptr<Channel> other,
                                             const FallbackOptions& options) {
  return std::make_unique<FallbackChannel>(std::move(better), std::move(other), options);
}

}  // namespace cistern::transport
