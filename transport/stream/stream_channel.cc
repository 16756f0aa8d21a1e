#include "transport/stream/stream_channel.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/group_state.h"
#include "transport/io_context_access.h"
#include "transport/io_thread.h"
#include "transport/stream/lane.h"

namespace cistern::transport {
namespace {

class StreamChannel final : public Channel {
 public:
  StreamChannel(IoContext* io, const StreamChannelOptions& options)
      : shared_(std::make_shared<ChannelShared>(options)),
        small_lanes_(options.separate_small_lane ? 1 : 0) {
    for (int i = 0; i < small_lanes_ + std::max(1, options.connections); ++i) {
      lanes_.push_back(std::make_shared<Lane>(IoThreadOf(io), shared_, i < small_lanes_));
    }
  }

  ~StreamChannel() override {
    if (shared_->abandoned) {
      // Locks may have been held when the process forked: the lanes are left as they are.
      static auto& kept = *new std::vector<std::shared_ptr<Lane>>();
      kept.insert(kept.end(), lanes_.begin(), lanes_.end());
      return;
    }
    for (const auto& lane : lanes_) {
      lane->Shutdown(absl::CancelledError("the channel was closed"));
    }
  }

  void Start(CallSpec spec, CallHandler* handler, CallGroup* group) override {
    absl::Status refused;
    if (shared_->abandoned) {
      refused = absl::FailedPreconditionError("this channel belongs to the parent process");
    } else if (spec.deadline == MonoTime::Infinite()) {
      refused = absl::InvalidArgumentError("a call needs a deadline");
    } else if (spec.payload != nullptr && spec.payload->remaining() > kMaxDataFrameBytes) {
      refused = absl::InvalidArgumentError(
          absl::StrCat("a request carries at most ", kMaxDataFrameBytes, " bytes of payload"));
    }
    if (!refused.ok()) {
      spec.payload.reset();
      handler->OnDone(refused);
      return;
    }
    Lane& lane = Choose(spec.small);
    const std::shared_ptr<GroupState>& state = GroupState::Of(*group);
    state->Begin(lane.shared_from_this());
    lane.StartCall(std::make_unique<LaneCall>(std::move(spec), handler, state));
  }

  void AddPreamble(Preamble preamble) override {
    for (const auto& lane : lanes_) lane->AddPreamble(preamble);
  }

  PeerInfo peer() const override { return shared_->peer(); }
  absl::Status last_error() const override { return shared_->last_error(); }
  ChannelStats stats() const override {
    ChannelStats stats;
    stats.connections = shared_->connections.load(std::memory_order_relaxed);
    stats.reconnects = shared_->reconnects.load(std::memory_order_relaxed);
    stats.bytes_in = shared_->bytes_in.load(std::memory_order_relaxed);
    stats.bytes_out = shared_->bytes_out.load(std::memory_order_relaxed);
    for (const auto& lane : lanes_) stats.inflight_bytes += lane->load();
    return stats;
  }

  void AbandonAfterFork() override {
    shared_->abandoned = true;
    for (const auto& lane : lanes_) lane->AbandonAfterFork();
  }

 private:
  // The least loaded; the first of equals, so that a quiet peer gets few connections.
  Lane& Choose(bool small) {
    if (small && small_lanes_ > 0) return *lanes_[0];
    Lane* best = lanes_[static_cast<size_t>(small_lanes_)].get();
    for (size_t i = static_cast<size_t>(small_lanes_) + 1; i < lanes_.size(); ++i) {
      if (best->load() == 0) break;
      if (lanes_[i]->load() < best->load()) best = lanes_[i].get();
    }
    return *best;
  }

  const std::shared_ptr<ChannelShared> shared_;
  const int small_lanes_;
  std::vector<std::shared_ptr<Lane>> lanes_;
};

}  // namespace

std::unique_ptr<Channel> MakeStreamChannel(IoContext* io, const StreamChannelOptions& options) {
  return std::make_unique<StreamChannel>(io, options);
}

}  // namespace cistern::transport
