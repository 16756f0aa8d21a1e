#include "master/segment_commands.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::master {

void SegmentCommands::Send(const std::string& store, wire::SegmentCommand command,
                           MonoTime deadline, Done done) {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    if (closed_) {
      status = absl::UnavailableError("the master is stopping");
    } else if (waiting_.size() >= kMaxWaiting) {
      status = absl::ResourceExhaustedError("too many commands wait for stores; try again");
    }
  }
  Answer answer;
  if (!status.ok()) return done(status, answer);
  const absl::StatusOr<MasterCore::Commanded> commanded =
      driver_.With([&](MasterCore& core, MonoTime now) -> absl::StatusOr<MasterCore::Commanded> {
        {
          MutexLock lock(mutex_);
          command.set_command(core.epoch().value << 32 | next_command_++);
        }
        // The store answers before we give up.
        command.set_deadline_ms(static_cast<uint32_t>(
            absl::ToInt64Milliseconds(std::max(deadline - now, absl::ZeroDuration()) * 0.9)));
        CISTERN_ASSIGN_OR_RETURN(MasterCore::Commanded sent,
                                 core.QueueSegmentCommand(store, command));
        // Before the message can leave: the answer may come at once.
        MutexLock lock(mutex_);
        if (closed_) return absl::UnavailableError("the master is stopping");
        waiting_[command.command()] = {sent.session, sent.store, deadline, std::move(done)};
        return sent;
      });
  if (!commanded.ok()) return done(commanded.status(), answer);
  driver_.Dispatch();
}

void SegmentCommands::OnAnswer(SessionId session, wire::SegmentDone& answer) {
  Waiting waiting;
  {
    MutexLock lock(mutex_);
    const auto it = waiting_.find(answer.command());
    if (it == waiting_.end() || it->second.session != session) return;
    waiting = std::move(it->second);
    waiting_.erase(it);
  }
  Answer full;
  full.store = waiting.store;
  full.done = std::move(answer);
  const uint32_t code = full.done.code();
  // A number that is no code of ours comes from a newer or a foolish store.
  const auto known = code <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)
                         ? static_cast<absl::StatusCode>(code)
                         : absl::StatusCode::kUnknown;
  const absl::Status status =
      code == 0
          ? absl::OkStatus()
          : absl::Status(known, absl::StrCat("store ", full.store, ": ", full.done.message()));
  waiting.done(status, full);
}

void SegmentCommands::Sweep() {
  absl::flat_hash_map<uint64_t, SessionId> sessions;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, waiting] : waiting_) sessions[number] = waiting.session;
  }
  if (sessions.empty()) return;
  std::vector<uint64_t> cut;
  const MonoTime now = driver_.With([&](MasterCore& core, MonoTime core_now) {
    for (const auto& [number, session] : sessions) {
      if (!core.InSession(session)) cut.push_back(number);
    }
    return core_now;
  });
  std::vector<std::pair<absl::Status, Waiting>> over;
  {
    MutexLock lock(mutex_);
    for (const uint64_t number : cut) {
      const auto it = waiting_.find(number);
      if (it == waiting_.end()) continue;
      absl::Status lost = absl::AbortedError(
          absl::StrCat("the session with store ", it->second.store,
                       " ended before it answered; cisternctl segments shows what it has"));
      over.emplace_back(std::move(lost), std::move(it->second));
      waiting_.erase(it);
    }
    for (const auto& [number, session] : sessions) {
      const auto it = waiting_.find(number);
      if (it == waiting_.end() || now < it->second.deadline) continue;
      absl::Status late = absl::DeadlineExceededError(
          absl::StrCat("store ", it->second.store,
                       " has not answered yet; cisternctl segments shows what it has"));
      over.emplace_back(std::move(late), std::move(it->second));
      waiting_.erase(it);
    }
  }
  for (auto& [status, waiting] : over) waiting.done(status, {waiting.store, {}});
}

void SegmentCommands::Close() {
  std::vector<Waiting> rest;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    for (auto& [number, waiting] : waiting_) rest.push_back(std::move(waiting));
    waiting_.clear();
  }
  for (Waiting& waiting : rest) {
    waiting.done(absl::UnavailableError("the master is stopping"), {waiting.store, {}});
  }
}

}  // namespace cistern::master
