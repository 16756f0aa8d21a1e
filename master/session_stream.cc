#include "master/session_stream.h"

#include <utility>

namespace cistern::master {

SessionStream::SessionStream(uint64_t id, grpc::CallbackServerContext* context,
                             SessionStreamOwner* owner, Clock& clock, const Limits& limits)
    : id_(id),
      context_(context),
      owner_(owner),
      clock_(clock),
      opened_at_(clock.Mono()),
      limits_(limits),
      peer_(context->peer()) {}

void SessionStream::Start() {
  {
    MutexLock lock(mutex_);
    self_ = shared_from_this();
  }
  StartRead(&incoming_);
}

bool SessionStream::HasRoomLocked() const {
  return !closing_ && !aborted_ && !finished_ && queue_.size() < limits_.room_messages &&
         queued_bytes_ < limits_.room_bytes;
}

bool SessionStream::HasRoom() const {
  MutexLock lock(mutex_);
  return HasRoomLocked();
}

absl::Duration SessionStream::StalledFor(MonoTime now) const {
  MutexLock lock(mutex_);
  return writing_ ? now - write_started_ : absl::ZeroDuration();
}

MonoTime SessionStream::closing_since() const {
  MutexLock lock(mutex_);
  return closing_since_;
}

SessionStream::Step SessionStream::NextStepLocked() {
  if (writing_ || cancelling_ || finished_) return Step::kNothing;
  if (!aborted_ && !queue_.empty()) {
    outgoing_ = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= outgoing_.ByteSizeLong();
    writing_ = true;
    write_started_ = clock_.Mono();
    return Step::kWrite;
  }
  if ((!aborted_ && !closing_) || in_hand_ > 0) return Step::kNothing;
  finished_ = true;
  return Step::kFinish;
}

void SessionStream::Do(Step step) {
  switch (step) {
    case Step::kNothing:
      return;
    case Step::kWrite:
      StartWrite(&outgoing_);
      return;
    case Step::kFinish:
      Finish(grpc::Status::OK);
      return;
  }
}

void SessionStream::Send(wire::MasterMessage message) {
  const size_t bytes = message.ByteSizeLong();
  Step step = Step::kNothing;
  bool overflow = false;
  {
    MutexLock lock(mutex_);
    if (closing_ || aborted_ || finished_) return;
    overflow = queue_.size() >= limits_.max_queued_messages ||
               queued_bytes_ + bytes > limits_.max_queued_bytes;
    if (!overflow) {
      queue_.push_back(std::move(message));
      queued_bytes_ += bytes;
      step = NextStepLocked();
    }
  }
  if (overflow) return Abort();
  Do(step);
}

void SessionStream::CloseWithError(const absl::Status& why) {
  wire::MasterMessage message;
  message.mutable_error()->set_code(static_cast<uint32_t>(why.code()));
  message.mutable_error()->set_message(std::string(why.message()));
  Send(std::move(message));
  Close();
}

void SessionStream::Close() {
  Step step;
  {
    MutexLock lock(mutex_);
    if (!closing_) closing_since_ = clock_.Mono();
    closing_ = true;
    step = NextStepLocked();
  }
  Do(step);
}

void SessionStream::Abort() {
  Step step;
  {
    MutexLock lock(mutex_);
    if (aborted_ || finished_) return;
    aborted_ = true;
    queue_.clear();
    queued_bytes_ = 0;
    // A write under way ends only when the peer reads: cancel it. Finish, behind which the context
    // may be gone, waits until that is done.
    cancelling_ = writing_;
    step = NextStepLocked();
  }
  if (step == Step::kFinish) return Do(step);
  context_->TryCancel();
  {
    MutexLock lock(mutex_);
    cancelling_ = false;
    step = NextStepLocked();
  }
  Do(step);
}

void SessionStream::ReadNext() {
  const std::shared_ptr<SessionStream> self = shared_from_this();  // it may end meanwhile
  StartRead(&incoming_);
  Step step;
  {
    MutexLock lock(mutex_);
    --in_hand_;
    step = NextStepLocked();
  }
  Do(step);
}

void SessionStream::OnReadDone(bool ok) {
  if (ok) {
    {
      MutexLock lock(mutex_);
      ++in_hand_;
    }
    if (owner_->OnStreamMessage(*this, incoming_)) ReadNext();
    return;
  }
  owner_->OnStreamClosed(*this);
  Close();
}

void SessionStream::OnWriteDone(bool ok) {
  Step step;
  bool got_room = false;
  {
    MutexLock lock(mutex_);
    const bool had_room = HasRoomLocked();
    writing_ = false;
    if (!ok) {
      aborted_ = true;
      queue_.clear();
      queued_bytes_ = 0;
    }
    step = NextStepLocked();
    got_room = !had_room && HasRoomLocked();
  }
  Do(step);
  if (got_room) owner_->OnStreamRoom(*this);
}

// The peer went away: reading ends by itself with !ok.
void SessionStream::OnCancel() {}

void SessionStream::OnDone() {
  std::shared_ptr<SessionStream> self;
  {
    MutexLock lock(mutex_);
    self = std::move(self_);
  }
}

}  // namespace cistern::master
