// The calls of a lane: how they begin, what their answers do, how they end.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/data.pb.h"
#include "transport/stream/call_status.h"
#include "transport/stream/lane.h"

namespace cistern::transport {
namespace {

// What a peer gets to answer a cancel that is sent late: without it a hiccup of ours would cost the
// connection.
constexpr absl::Duration kLeastGrace = absl::Milliseconds(20);

}  // namespace

void Lane::AddCall(std::unique_ptr<LaneCall> owned) {
  LaneCall* const call = owned.get();
  call->id = next_call_id_++;
  if (call->group->background()) ++background_calls_;
  const bool was_idle = calls_.empty();
  calls_.emplace(call->id, std::move(owned));
  if (state_ == State::kClosed) {
    Finish(call, MarkNeverSent(absl::CancelledError("the channel is closed")));
    return;
  }
  call_timer_ = std::min(call_timer_, call->spec.deadline);
  if (state_ != State::kUp || broken_.has_value()) return;
  if (was_idle) {
    const MonoTime now = clock_.Mono();
    if (WentStale(now)) {
      answered_ = true;  // a server that went away: no reason to hesitate
      SetBroken(absl::UnavailableError("the peer closed it while it was idle"));
      return;
    }
    last_used_ = now;
  }
  PushCall(call);
}

void Lane::PushCall(LaneCall* call) {
  if (call->spec.meta.size() > peer_max_meta_bytes_) {
    Finish(call, absl::InvalidArgumentError(absl::StrCat("a request of ", call->spec.meta.size(),
                                                         " bytes; the peer takes at most ",
                                                         peer_max_meta_bytes_)));
    return;
  }
  auto item = std::make_unique<OutItem>();
  item->type = call->spec.type;
  item->meta = std::move(call->spec.meta);
  item->source = std::move(call->spec.payload);
  item->payload_in_frame = true;
  call->pushed = true;
  queue_.Push(call, std::move(item));
}

void Lane::PushWaitingCalls() {
  std::vector<LaneCall*> waiting;
  for (const auto& [id, call] : calls_) {
    if (!call->pushed) waiting.push_back(call.get());
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const LaneCall* a, const LaneCall* b) { return a->id < b->id; });
  for (LaneCall* call : waiting) PushCall(call);
}

absl::Status Lane::OnFrame(const FrameHeader& header, std::string_view meta) {
  frame_call_ = nullptr;
  if (state_ == State::kHandshake) return OnHandshakeFrame(header, meta);
  if (header.request_id >= kPreambleIds) return OnPreambleAnswer(header, meta);
  const auto it = calls_.find(header.request_id);
  // A CancelDone that came after the final frame, most likely.
  if (it == calls_.end()) return absl::OkStatus();
  if (!answered_) {
    answered_ = true;
    failures_ = 0;
  }
  return OnAnswer(it->second.get(), header, meta);
}

absl::Status Lane::OnAnswer(LaneCall* call, const FrameHeader& header, std::string_view meta) {
  const bool final = (header.flags & kFlagFinal) != 0 || header.type == FrameType::kError ||
                     header.type == FrameType::kCancelDone;
  if (call->end.has_value()) {
    if (final) {
      call->awaits_cancel_done = false;
      FinishIfQuiet(call);
    }
    return absl::OkStatus();
  }
  if (header.type == FrameType::kError) {
    EndCall(call, StatusOf(meta));
    return absl::OkStatus();
  }
  if (header.type == FrameType::kCancelDone) {
    return absl::InvalidArgumentError("a cancel answered that nobody sent");
  }
  CallHandler::Answer answer{header.type, final, meta, header.payload_bytes};
  std::unique_ptr<PayloadSource> source;
  call->sink = nullptr;
  call->final_seen = final;
  frame_call_ = call;
  if (absl::Status status = call->handler->OnFrame(answer, &call->sink, &source); !status.ok()) {
    call->end = status;
    return status;
  }
  if (source != nullptr) {
    auto item = std::make_unique<OutItem>();
    item->data_only = true;
    item->source = std::move(source);
    queue_.Push(call, std::move(item));
  }
  return absl::OkStatus();
}

FrameReceiver::Take Lane::PayloadBuffers(size_t max_bytes, size_t max_pieces,
                                         std::vector<iovec>* out, absl::Status* error) {
  LaneCall* const call = frame_call_;
  if (call == nullptr || call->end.has_value() || call->sink == nullptr) return Take::kDiscard;
  const size_t before = out->size();
  call->sink->NextBuffers(max_bytes, max_pieces, out);
  if (out->size() == before) {
    *error = absl::InvalidArgumentError("more payload than was asked for");
    call->end = *error;
    return Take::kPause;
  }
  return Take::kBuffers;
}

absl::Status Lane::PayloadLanded(size_t bytes) {
  LaneCall* const call = frame_call_;
  // What was on its way to its place when the call was cancelled: it is not over yet.
  if (call == nullptr || call->end.has_value()) return absl::OkStatus();
  absl::Status status = call->sink->Landed(bytes);
  if (!status.ok()) call->end = status;
  return status;
}

absl::Status Lane::PayloadAt(const char* from, size_t bytes, size_t* taken) {
  *taken = 0;
  LaneCall* const call = frame_call_;
  if (call == nullptr || call->end.has_value() || call->sink == nullptr) return absl::OkStatus();
  absl::Status status = call->sink->TakeFrom(from, bytes, taken);
  if (!status.ok()) call->end = status;
  return status;
}

absl::Status Lane::OnFrameEnd() {
  LaneCall* const call = frame_call_;
  frame_call_ = nullptr;
  if (call != nullptr && !call->end.has_value() && call->final_seen) {
    EndCall(call, absl::OkStatus());
  }
  return absl::OkStatus();
}

// The deadline has come, or the caller wants no more.
void Lane::CancelCall(LaneCall* call, const absl::Status& why) {
  if (call->end.has_value()) return;
  if (!call->pushed) {
    Finish(call, MarkNeverSent(why));
    return;
  }
  std::vector<std::unique_ptr<OutItem>> dropped;
  const bool begun = call->begun;
  queue_.Abort(call, &dropped);
  dropped.clear();
  if (!begun) {
    Finish(call, MarkNeverSent(why));
    return;
  }
  call->end = why;
  call->awaits_cancel_done = true;
  // From the deadline on, however late we are called (on a busy host): the caller was promised so.
  const MonoTime now = clock_.Mono();
  call->grace = std::max(std::min(now, call->spec.deadline) + kCancelGrace, now + kLeastGrace);
  call_timer_ = std::min(call_timer_, call->grace);
  wire::Cancel cancel;
  cancel.set_request_id(call->id);
  auto item = std::make_unique<OutItem>();
  item->type = FrameType::kCancel;
  item->meta = cancel.SerializeAsString();
  queue_.PushFirst(call, std::move(item));
}

// The answer is complete. What of the request is still under way has to leave first: it is read
// from the caller's memory.
void Lane::EndCall(LaneCall* call, const absl::Status& status) {
  std::vector<std::unique_ptr<OutItem>> dropped;
  queue_.Abort(call, &dropped);
  dropped.clear();
  call->end = status;
  if (call->in_flight > 0) {
    call->grace = clock_.Mono() + kCancelGrace;
    call_timer_ = std::min(call_timer_, call->grace);
  }
  FinishIfQuiet(call);
}

void Lane::FinishIfQuiet(LaneCall* call) {
  if (!call->end.has_value() || call->awaits_cancel_done) return;
  if (call->in_flight > 0 || !call->items.empty()) {
    // Its Cancel, say, when the final frame came first: not needed any more, unless under way.
    std::vector<std::unique_ptr<OutItem>> dropped;
    if (queue_.Abort(call, &dropped)) return;
  }
  const absl::Status status = *call->end;
  Finish(call, status);
}

void Lane::Finish(LaneCall* call, absl::Status status) {
  const auto it = calls_.find(call->id);
  const std::unique_ptr<LaneCall> owned = std::move(it->second);
  calls_.erase(it);
  if (frame_call_ == call) frame_call_ = nullptr;
  if (owned->group->background()) --background_calls_;
  owned->spec.payload.reset();
  load_.fetch_sub(owned->expected_bytes, std::memory_order_relaxed);
  const std::shared_ptr<GroupState> group = owned->group;
  owned->handler->OnDone(std::move(status));
  group->End(this);
}

void Lane::FinishItems(std::vector<std::unique_ptr<OutItem>>* items) {
  if (items->empty()) return;
  // By id: a call ends with the first of its items that finds it quiet.
  std::vector<uint64_t> ids;
  for (const auto& item : *items) ids.push_back(item->stream->id);
  items->clear();
  for (const uint64_t id : ids) {
    const auto it = calls_.find(id);
    if (it != calls_.end()) FinishIfQuiet(it->second.get());
  }
}

void Lane::RunTimers(MonoTime now) {
  if (now < call_timer_) return;
  call_timer_ = MonoTime::Infinite();
  std::vector<LaneCall*> due;
  for (const auto& [id, call] : calls_) {
    const MonoTime when = call->end.has_value() ? call->grace : call->spec.deadline;
    if (when <= now) {
      due.push_back(call.get());
    } else {
      call_timer_ = std::min(call_timer_, when);
    }
  }
  for (LaneCall* call : due) {
    if (call->end.has_value()) {
      SetBroken(absl::UnavailableError("it did not answer a cancel in time"));
    } else if (call->pushed) {
      CancelCall(call, absl::DeadlineExceededError(absl::StrCat(
                           "no answer from ", shared_->Address(), " within the deadline")));
    } else if (!last_failure_.ok()) {
      Finish(call, MarkNeverSent(CannotReach()));
    } else {
      Finish(call, MarkNeverSent(absl::DeadlineExceededError(
                       absl::StrCat("cannot reach ", shared_->Address(), " within the deadline"))));
    }
  }
}

}  // namespace cistern::transport
