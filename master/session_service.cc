#include "master/session_service.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "base/string_view.h"

namespace cistern::master {
namespace {

// The session's largest messages are a snapshot's pages; see master/control_grpc.h for the limit.
transport::ServerOffer Offer() {
  transport::ServerOffer offer;
  offer.max_keys = 4096;  // records of a delta
  return offer;
}

// Fault points of what a store sends.
bool PassFault(const wire::StoreMessage& message) {
  if (message.has_delta()) return CISTERN_FAULT("master.session.delta");
  if (message.has_snapshot_begin()) return CISTERN_FAULT("master.snapshot.begin");
  if (message.has_snapshot_page()) return CISTERN_FAULT("master.snapshot.page");
  if (message.has_snapshot_end()) return CISTERN_FAULT("master.snapshot.end");
  return false;
}

std::string PrintableId(std::string_view id) {
  const absl::StatusOr<StoreId> parsed = StoreId::Parse(id);
  return parsed.ok() ? parsed->ToHex() : "?";
}

}  // namespace

struct SessionService::StreamState {
  explicit StreamState(const transport::LocalIdentity& identity) : handshake(identity, Offer()) {}

  enum class Step { kHelloAuth, kAuth, kHello, kOpen, kEnded };
  Step step = Step::kHelloAuth;
  transport::ServerHandshake handshake;
  SessionId session;
  std::string store;    // for people
  bool opened = false;  // was ever in session
};

SessionService::SessionService(Options options, CoreDriver& driver, RocksStateStore& state)
    : options_(std::move(options)), driver_(driver), state_(state), worker_(driver) {}

SessionService::~SessionService() = default;

grpc::ServerBidiReactor<wire::StoreMessage, wire::MasterMessage>* SessionService::Session(
    grpc::CallbackServerContext* context) {
  const StreamPtr stream =
      std::make_shared<SessionStream>(next_stream_.fetch_add(1, std::memory_order_relaxed), context,
                                      this, driver_.clock(), options_.stream);
  const auto state = std::make_shared<StreamState>(options_.identity);
  stream->owner_state = state;
  bool refused = false;
  {
    MutexLock lock(mutex_);
    refused = closed_ || streams_.size() >= options_.max_streams;
    streams_[stream->id()] = {stream, /*stranger=*/!refused};
  }
  if (refused) state->step = StreamState::Step::kEnded;
  stream->Start();
  if (refused) stream->CloseWithError(absl::UnavailableError("the master takes no more sessions"));
  return stream.get();  // which holds itself
}

bool SessionService::OnStreamMessage(SessionStream& stream, wire::StoreMessage& message) {
  StreamState& state = *static_cast<StreamState*>(stream.owner_state.get());
  absl::Status status;
  switch (state.step) {
    case StreamState::Step::kHelloAuth:
      status = OnHelloAuth(stream, state, message);
      break;
    case StreamState::Step::kAuth:
      status = OnAuth(state, message);
      break;
    case StreamState::Step::kHello:
      status = OnHello(stream, state, message);
      break;
    case StreamState::Step::kOpen:
      if (message.has_segment_done()) {
        if (options_.on_segment_done) {
          options_.on_segment_done(state.session, *message.mutable_segment_done());
        }
        return true;
      }
      OnRecords(stream, state, message);
      return false;
    case StreamState::Step::kEnded:
      return true;
  }
  if (!status.ok()) EndWithError(stream, state, status);
  return true;
}

void SessionService::EndWithError(SessionStream& stream, StreamState& state,
                                  const absl::Status& why) {
  CISTERN_LOG_EVERY(Warning, absl::Seconds(1), "session from ", stream.peer(), ": ",
                    why.ToString());
  stream.CloseWithError(why);
  EndSession(state);
}

absl::Status SessionService::OnHelloAuth(SessionStream& stream, StreamState& state,
                                         const wire::StoreMessage& message) {
  if (!message.has_hello_auth()) {
    return absl::InvalidArgumentError("a session begins with hello_auth");
  }
  if (message.hello_auth().kind() != wire::PEER_STORE) {
    return absl::InvalidArgumentError("sessions are for stores");
  }
  wire::MasterMessage answer;
  CISTERN_ASSIGN_OR_RETURN(*answer.mutable_auth_ack(),
                           state.handshake.OnHello(message.hello_auth()));
  stream.Send(std::move(answer));
  state.step = StreamState::Step::kAuth;
  return absl::OkStatus();
}

absl::Status SessionService::OnAuth(StreamState& state, const wire::StoreMessage& message) {
  if (!message.has_auth()) return absl::InvalidArgumentError("auth expected");
  CISTERN_RETURN_IF_ERROR(state.handshake.OnAuth(message.auth()));
  state.step = StreamState::Step::kHello;
  return absl::OkStatus();
}

absl::Status SessionService::OnHello(SessionStream& stream, StreamState& state,
                                     const wire::StoreMessage& message) {
  if (!message.has_hello()) return absl::InvalidArgumentError("hello expected");
  (void)CISTERN_FAULT("master.session.hello");
  const wire::SessionHello& hello = message.hello();
  absl::Status fenced;
  const auto open = [&] {
    return driver_.With([&](MasterCore& core, MonoTime now) {
      auto result = core.OnHello(hello, now);
      fenced = core.fenced();
      return result;
    });
  };
  absl::StatusOr<MasterCore::Opened> opened = open();
  if (absl::IsUnavailable(opened.status())) {
    // Its last session's commands, where that ended just now; else the store tries again.
    while (driver_.With([](MasterCore& core, MonoTime now) { return core.TakeBackStep(now); })) {
    }
    opened = open();
  }
  if (!fenced.ok() && options_.on_fenced) options_.on_fenced(fenced);
  if (!opened.ok()) {
    return Annotate(opened.status(),
                    absl::StrCat("store ", hello.name(), " (", PrintableId(hello.store_id()), ")"));
  }
  state.step = StreamState::Step::kOpen;
  state.opened = true;
  state.session = opened->session;
  state.store = absl::StrCat(hello.name(), " (", PrintableId(hello.store_id()), ")");
  CISTERN_LOG(Info, "store ", state.store, " from ", stream.peer(), ": in session as number ",
              opened->ack.store_index(),
              opened->ack.snapshot() ? ", sends a snapshot" : ", resumes");
  const StreamPtr held = stream.shared_from_this();
  {
    MutexLock lock(mutex_);
    streams_[stream.id()].stranger = false;
  }
  // The epoch may have been raised: a store must not hear of one that could be forgotten.
  state_.WhenEpochDurable([this, held, opened = *std::move(opened)](absl::Status saved) {
    if (saved.ok()) return Welcome(held, opened.session, opened.ack);
    held->CloseWithError(Annotate(saved, "cannot save the epoch"));
  });
  return absl::OkStatus();
}

void SessionService::Welcome(const StreamPtr& stream, SessionId session,
                             const wire::SessionHelloAck& ack) {
  wire::MasterMessage message;
  *message.mutable_hello_ack() = ack;
  stream->Send(std::move(message));
  {
    MutexLock lock(mutex_);
    // Not for a stream that has ended meanwhile: nobody would take it off again.
    if (streams_.contains(stream->id())) sessions_[session] = stream;
  }
  (void)CISTERN_FAULT("master.session.welcomed");
  driver_.Dispatch();
}

void SessionService::OnRecords(SessionStream& stream, StreamState& state,
                               const wire::StoreMessage& message) {
  (void)PassFault(message);
  const bool delta = message.has_delta();
  worker_.Add(state.session, message,
              [this, delta, &state, held = stream.shared_from_this()](const absl::Status& status) {
                if (delta) (void)CISTERN_FAULT("master.session.applied");
                if (status.ok()) {
                  driver_.DispatchTo(state.session);
                } else {
                  EndWithError(*held, state, status);
                }
                held->ReadNext();
              });
}

void SessionService::OnStreamRoom(SessionStream&) { driver_.Dispatch(); }

void SessionService::OnStreamClosed(SessionStream& stream) {
  StreamState& state = *static_cast<StreamState*>(stream.owner_state.get());
  if (!state.opened) handshake_failures_.fetch_add(1, std::memory_order_relaxed);
  if (state.step == StreamState::Step::kOpen) {
    CISTERN_LOG(Info, "store ", state.store, ": session ended");
  }
  EndSession(state);
  MutexLock lock(mutex_);
  streams_.erase(stream.id());
  // Again: a welcome that waited for the disk may have come after EndSession.
  sessions_.erase(state.session);
}

void SessionService::EndSession(StreamState& state) {
  const bool was_open = state.step == StreamState::Step::kOpen;
  state.step = StreamState::Step::kEnded;
  if (!was_open) return;
  {
    MutexLock lock(mutex_);
    sessions_.erase(state.session);
  }
  driver_.With([&](MasterCore& core, MonoTime now) { core.OnSessionClosed(state.session, now); });
  driver_.Dispatch();
}

SessionService::StreamPtr SessionService::Find(SessionId session) const {
  MutexLock lock(mutex_);
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : it->second;
}

bool SessionService::CanTake(SessionId session) {
  const StreamPtr stream = Find(session);
  return stream != nullptr && stream->HasRoom();
}

void SessionService::Deliver(SessionId session, std::vector<wire::MasterMessage> messages) {
  const StreamPtr stream = Find(session);
  if (stream == nullptr) return;
  for (wire::MasterMessage& message : messages) {
    const bool last = message.has_error();
    stream->Send(std::move(message));
    if (last) return stream->Close();
  }
}

void SessionService::Sweep() {
  const MonoTime now = driver_.clock().Mono();
  std::vector<StreamPtr> slow;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, entry] : streams_) {
      const SessionStream& stream = *entry.stream;
      if ((entry.stranger && now - stream.opened_at() > options_.handshake_timeout) ||
          now - stream.closing_since() > options_.close_timeout ||
          stream.StalledFor(now) > options_.stall_timeout) {
        slow.push_back(entry.stream);
      }
    }
  }
  for (const StreamPtr& stream : slow) stream->Abort();
}

void SessionService::Close() {
  std::vector<StreamPtr> streams;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    for (const auto& [id, entry] : streams_) streams.push_back(entry.stream);
  }
  for (const StreamPtr& stream : streams) {
    stream->CloseWithError(absl::UnavailableError("the master is stopping"));
  }
}

size_t SessionService::stream_count() const {
  MutexLock lock(mutex_);
  return streams_.size();
}

}  // namespace cistern::master
