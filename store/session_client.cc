#include "store/session_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/key_hash.h"
#include "base/log.h"
#include "base/status.h"
#include "store/session_stream.h"

namespace cistern::store {
namespace {

constexpr absl::Duration kHandshakeTimeout = absl::Seconds(5);
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(10);
constexpr absl::Duration kMaxBackoff = absl::Milliseconds(500);

uint32_t RandomSeed() {
  uint32_t seed;
  RandomBytes(&seed, sizeof(seed));
  return seed;
}

}  // namespace

SessionClient::SessionClient(std::string master_address, StoreSession& session, Clock& clock)
    : master_address_(std::move(master_address)),
      session_(session),
      clock_(clock),
      jitter_(RandomSeed()),
      alone_since_(clock.Mono()) {}

SessionClient::~SessionClient() { Stop(); }

void SessionClient::Start() {
  thread_ = std::thread([this] { Run(); });
}

void SessionClient::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void SessionClient::Poke() {
  MutexLock lock(mutex_);
  if (std::exchange(woken_, true)) return;
  changed_.NotifyAll();
}

void SessionClient::NeedBytes(uint64_t bytes, uint64_t extent_bytes) {
  MutexLock lock(mutex_);
  need_bytes_ = std::max(need_bytes_, bytes);
  need_extent_bytes_ = std::max(need_extent_bytes_, extent_bytes);
  woken_ = true;
  changed_.NotifyAll();
}

bool SessionClient::in_session() const {
  MutexLock lock(mutex_);
  return in_session_;
}

SessionClient::Numbers SessionClient::numbers() const {
  MutexLock lock(mutex_);
  return numbers_;
}

absl::Duration SessionClient::alone_for() const {
  MutexLock lock(mutex_);
  return in_session_ ? absl::ZeroDuration() : clock_.Mono() - alone_since_;
}

void SessionClient::Publish() {
  MutexLock lock(mutex_);
  const bool was = std::exchange(in_session_, session_.in_session());
  if (was && !in_session_) alone_since_ = clock_.Mono();
  if (!was && in_session_) ++numbers_.sessions;
  numbers_.in_session = in_session_;
  numbers_.epoch = session_.epoch();
  numbers_.snapshots_begun = session_.snapshots_begun();
  numbers_.snapshots_sent = session_.snapshots_sent();
}

bool SessionClient::WaitUntil(MonoTime when) {
  MutexLock lock(mutex_);
  while (!stopping_ && !std::exchange(woken_, false)) {
    const absl::Duration left = when - clock_.Mono();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(mutex_, left);
  }
  return !stopping_;
}

void SessionClient::Run() {
  absl::Duration backoff = kFirstBackoff;
  bool told = false;
  while (true) {
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      woken_ = false;
    }
    std::unique_ptr<SessionStream> stream = OpenSessionStream(master_address_, [this] { Poke(); });
    session_.OnConnected(clock_.Mono());
    absl::Status why = RunStream(*stream);
    const bool was_open = session_.in_session();
    session_.OnClosed(clock_.Mono());
    Publish();
    const absl::Status closed = stream->Close();
    if (why.ok()) why = closed;
    stream.reset();
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
    }
    if (was_open) backoff = kFirstBackoff;
    if (was_open || !std::exchange(told, true)) {
      CISTERN_LOG(Warning, "no session with the master at ", master_address_, ": ", why.ToString(),
                  "; trying again");
    } else {
      CISTERN_LOG_EVERY(Warning, absl::Seconds(10), "still no session with the master at ",
                        master_address_, ": ", why.ToString());
    }
    // Full jitter, so that a thousand stores do not come back in step.
    const double share = std::uniform_real_distribution<double>(0.0, 1.0)(jitter_);
    const MonoTime again = clock_.Mono() + backoff * share + absl::Milliseconds(1);
    while (clock_.Mono() < again) {
      if (!WaitUntil(again)) return;
    }
    backoff = std::min(backoff * 2, kMaxBackoff);
  }
}

absl::Status SessionClient::RunStream(SessionStream& stream) {
  const MonoTime handshake_deadline = clock_.Mono() + kHandshakeTimeout;
  wire::StoreMessage out;
  bool have_out = false;
  bool announced = false;
  while (true) {
    for (const wire::MasterMessage& message : stream.TakeMessages()) {
      CISTERN_RETURN_IF_ERROR(session_.OnMessage(message, clock_.Mono()));
    }
    if (!stream.status().ok()) return absl::OkStatus();  // Close() tells why
    Publish();
    if (session_.in_session() && !std::exchange(announced, true)) {
      CISTERN_LOG(Info, "in session with the master at ", master_address_, ", epoch ",
                  session_.epoch());
    }
    {
      MutexLock lock(mutex_);
      if (need_bytes_ != 0 || need_extent_bytes_ != 0) {
        session_.NeedBytes(std::exchange(need_bytes_, 0), std::exchange(need_extent_bytes_, 0),
                           clock_.Mono());
      }
    }
    while (have_out || session_.Next(clock_.Mono(), clock_.Wall(), &out)) {
      have_out = !stream.TryWrite(&out);
      if (have_out) break;
    }
    const MonoTime now = clock_.Mono();
    if (!session_.in_session() && now >= handshake_deadline) {
      return absl::DeadlineExceededError("the master did not finish the handshake");
    }
    // While a write is pending its end wakes us.
    MonoTime wake = have_out ? MonoTime::Infinite() : session_.NextWake(now);
    if (!session_.in_session()) wake = std::min(wake, handshake_deadline);
    if (!WaitUntil(wake)) return absl::CancelledError("stopping");
  }
}

absl::StatusOr<PoolId> FetchPoolId(const std::string& address,
                                   const transport::LocalIdentity& identity, Clock& clock,
                                   absl::Duration timeout) {
  Mutex mutex;
  CondVar changed;
  bool woken = false;
  const MonoTime deadline = clock.Mono() + timeout;
  // Declared after what its callback uses: destroyed first.
  std::unique_ptr<SessionStream> stream = OpenSessionStream(address, [&] {
    MutexLock lock(mutex);
    woken = true;
    changed.NotifyAll();
  });
  transport::ClientHandshake handshake(identity, std::string(), false);
  wire::StoreMessage hello;
  *hello.mutable_hello_auth() = handshake.MakeHello();
  if (!stream->TryWrite(&hello)) return stream->Close();
  while (clock.Mono() < deadline) {
    for (const wire::MasterMessage& message : stream->TakeMessages()) {
      if (message.kind_case() == wire::MasterMessage::kError) {
        return absl::Status(static_cast<absl::StatusCode>(message.error().code()),
                            message.error().message());
      }
      if (message.kind_case() != wire::MasterMessage::kAuthAck) continue;
      CISTERN_RETURN_IF_ERROR(handshake.OnHelloAck(message.auth_ack()).status());
      return handshake.peer().pool_id;
    }
    if (!stream->status().ok()) {
      const absl::Status why = stream->Close();
      return why.ok() ? absl::UnavailableError("the master closed the stream") : why;
    }
    MutexLock lock(mutex);
    if (!std::exchange(woken, false)) changed.WaitFor(mutex, deadline - clock.Mono());
    woken = false;
  }
  return absl::DeadlineExceededError(absl::StrCat("the master at ", address, " did not answer in ",
                                                  absl::FormatDuration(timeout)));
}

}  // namespace cistern::store
