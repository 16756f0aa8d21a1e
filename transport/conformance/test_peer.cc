#include "transport/conformance/test_peer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace cistern::transport {
namespace {

uint64_t Number(const std::vector<std::string>& words, size_t i) {
  return i < words.size() ? std::stoull(words[i]) : 0;
}

std::string Rest(std::string_view meta) {
  const size_t space = meta.find(' ');
  return space == std::string_view::npos ? "" : std::string(meta.substr(space + 1));
}

}  // namespace

std::string Pattern(uint32_t seed, uint64_t bytes) {
  constexpr uint64_t kPeriod = 1 << 16;
  std::string data(std::min(bytes, kPeriod), '\0');
  for (uint64_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(PatternByte(seed, i));
  data.reserve(bytes);
  while (data.size() < bytes) data.append(data, 0, std::min(bytes - data.size(), kPeriod));
  return data;
}

void PatternSource::NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) {
  for (size_t i = 0; i < max_pieces && max_bytes > 0 && position_ < data_.size(); ++i) {
    const size_t n = std::min({piece_, max_bytes, data_.size() - position_});
    out->push_back({data_.data() + position_, n});
    position_ += n;
    max_bytes -= n;
  }
}

void PatternSink::NextBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) {
  size_t position = landed_;
  for (size_t i = 0; i < max_pieces && max_bytes > 0 && position < bytes_; ++i) {
    // To the end of the piece that `position` is in.
    const size_t n = std::min({piece_ - position % piece_, max_bytes, bytes_ - position});
    out->push_back({memory_ + position, n});
    position += n;
    max_bytes -= n;
  }
}

absl::Status PatternSink::Landed(size_t bytes) {
  landed_ += bytes;
  EXPECT_LE(landed_, bytes_);
  return on_landed == nullptr ? absl::OkStatus() : on_landed(landed_);
}

// --- TestHandler ---

TestHandler::~TestHandler() { JoinThreads(); }

void TestHandler::JoinThreads() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void TestHandler::Notify() {
  MutexLock lock(mutex_);
  changed_.NotifyAll();
}

void TestHandler::Await(const std::function<bool()>& done) const {
  const MonoTime end = Clock::Real().Mono() + absl::Seconds(10);
  while (!done()) {
    ASSERT_LT(Clock::Real().Mono(), end) << "waited for 10 s";
    MutexLock lock(mutex_);
    changed_.WaitFor(mutex_, absl::Milliseconds(5));
  }
}

void TestHandler::OnConnected(ServerConnection& connection) {
  connection.user_state = std::make_shared<int>(0);
  connected.fetch_add(1);
  Notify();
}

void TestHandler::OnDisconnected(ServerConnection&) {
  disconnected.fetch_add(1);
  Notify();
}

int TestHandler::held() const {
  MutexLock lock(mutex_);
  return static_cast<int>(held_.size());
}

void TestHandler::ReleaseHeld() {
  std::vector<std::shared_ptr<ServerCall>> held;
  {
    MutexLock lock(mutex_);
    held.swap(held_);
  }
  for (const auto& call : held) call->Reply(FrameType::kPong, "released", true);
}

void TestHandler::OnRequest(std::unique_ptr<ServerCall> call) {
  requests.fetch_add(1);
  std::string meta(call->meta());
  std::vector<std::string> words = absl::StrSplit(meta, ' ');
  if (words[0] == "until") {
    call->SetDeadline(call->received_at() +
                      absl::Milliseconds(static_cast<int64_t>(Number(words, 1))));
    meta = Rest(Rest(meta));
    words.erase(words.begin(), words.begin() + 2);
  }
  const std::string& verb = words[0];
  if (verb == "echo") {
    call->Reply(FrameType::kPong, Rest(meta), true);
  } else if (verb == "thread") {
    MutexLock lock(mutex_);
    threads_.emplace_back(
        [call = std::move(call), text = Rest(meta)] { call->Reply(FrameType::kPong, text, true); });
  } else if (verb == "fail") {
    call->Fail(absl::NotFoundError(Rest(meta)));
  } else if (verb == "drop") {
    call.reset();
  } else if (verb == "hold") {
    std::shared_ptr<ServerCall> shared = std::move(call);
    shared->OnAbort([this](absl::Status status) {
      EXPECT_FALSE(status.ok());
      aborts.fetch_add(1);
      Notify();
    });
    MutexLock lock(mutex_);
    held_.push_back(std::move(shared));
  } else if (verb == "get") {
    Get(std::move(call), words);
  } else if (verb == "short") {
    Short(std::move(call), words);
  } else if (verb == "put") {
    Put(std::move(call), words);
  } else if (verb == "twice") {
    Twice(std::move(call), words);
  } else if (verb == "ready") {
    call->Reply(FrameType::kPutReady, "go", false);
    Put(std::move(call), words);
  } else if (verb == "ignore") {
    call->Reply(FrameType::kPutDone, "ignored", true);
  } else if (verb == "early") {
    call->Reply(FrameType::kPutReady, "go", false);
    call->Fail(absl::ResourceExhaustedError("changed my mind"));
  } else if (verb == "protocol") {
    call->ProtocolError(absl::InvalidArgumentError("as asked"));
  } else {
    call->Fail(absl::UnimplementedError(verb));
  }
  Notify();
}

void TestHandler::Get(std::unique_ptr<ServerCall> call, const std::vector<std::string>& words) {
  const uint64_t bytes = Number(words, 1);
  auto source =
      std::make_unique<PatternSource>(Pattern(static_cast<uint32_t>(Number(words, 3)), bytes),
                                      Number(words, 2), &sources_destroyed);
  std::shared_ptr<ServerCall> shared = std::move(call);
  shared->OnAbort([this](absl::Status) {
    aborts.fetch_add(1);
    Notify();
  });
  const int destroyed_before = sources_destroyed;
  shared->Reply(FrameType::kGetHead, absl::StrCat(bytes), false, std::move(source),
                [this, shared, destroyed_before](absl::Status status) {
                  EXPECT_GT(sources_destroyed, destroyed_before);
                  (status.ok() ? sent_ok : sent_failed).fetch_add(1);
                  // On an aborted call this goes nowhere.
                  shared->Reply(FrameType::kGetDone, "done", true);
                  Notify();
                });
}

void TestHandler::Short(std::unique_ptr<ServerCall> call, const std::vector<std::string>& words) {
  const uint64_t bytes = Number(words, 1);
  call->Reply(
      FrameType::kGetHead, absl::StrCat(bytes), true,
      std::make_unique<PatternSource>(Pattern(static_cast<uint32_t>(Number(words, 3)), bytes),
                                      Number(words, 2), &sources_destroyed),
      [this](absl::Status status) {
        (status.ok() ? sent_ok : sent_failed).fetch_add(1);
        Notify();
      });
}

void TestHandler::Put(std::shared_ptr<ServerCall> call, const std::vector<std::string>& words) {
  struct State {
    std::string memory;
    std::unique_ptr<PatternSink> sink;
  };
  auto state = std::make_shared<State>();
  const uint64_t bytes = Number(words, 1);
  const auto seed = static_cast<uint32_t>(Number(words, 3));
  state->memory.resize(bytes);
  state->sink = std::make_unique<PatternSink>(state->memory.data(), bytes, Number(words, 2));
  call->ReceivePayload(bytes, state->sink.get(),
                       [this, call, state, bytes, seed](absl::Status status) {
                         (status.ok() ? received_ok : received_failed).fetch_add(1);
                         const bool right = state->memory == Pattern(seed, bytes);
                         call->Reply(FrameType::kPutDone, right ? "right" : "wrong", true);
                         Notify();
                       });
}

void TestHandler::Twice(std::shared_ptr<ServerCall> call, const std::vector<std::string>& words) {
  struct State {
    std::string memory;
    std::unique_ptr<PatternSink> first;
    std::unique_ptr<PatternSink> second;
  };
  auto state = std::make_shared<State>();
  const uint64_t bytes = Number(words, 1);
  const uint64_t half = bytes / 3;
  const auto seed = static_cast<uint32_t>(Number(words, 3));
  state->memory.resize(bytes);
  char* const memory = state->memory.data();
  state->first = std::make_unique<PatternSink>(memory, half, Number(words, 2));
  state->second = std::make_unique<PatternSink>(memory + half, bytes - half, Number(words, 2));
  call->ReceivePayload(half, state->first.get(), [=, this](absl::Status status) {
    if (!status.ok()) {
      received_failed.fetch_add(1);
      Notify();
      return;
    }
    call->ReceivePayload(bytes - half, state->second.get(), [=, this](absl::Status second) {
      (second.ok() ? received_ok : received_failed).fetch_add(1);
      const bool right = state->memory == Pattern(seed, bytes);
      call->Reply(FrameType::kPutDone, right ? "right" : "wrong", true);
      Notify();
    });
  });
}

// --- TestCall ---

absl::Status TestCall::OnFrame(const Answer& answer, PayloadSink** to,
                               std::unique_ptr<PayloadSource>* source) {
  EXPECT_FALSE(status.has_value()) << "a frame after the end";
  frames.push_back(answer.type);
  meta = std::string(answer.meta);
  payload_bytes += answer.payload_bytes;
  if (answer.payload_bytes > 0) *to = sink;
  if (answer.type == FrameType::kPutReady && after_ready != nullptr) *source = after_ready();
  return on_frame == nullptr ? absl::OkStatus() : on_frame(answer);
}

void TestCall::OnDone(absl::Status s) {
  status = std::move(s);
  ++ends;
  if (on_done != nullptr) on_done();
}

CallSpec MakeSpec(FrameType type, std::string meta, absl::Duration deadline) {
  CallSpec spec;
  spec.type = type;
  spec.meta = std::move(meta);
  spec.deadline = Clock::Real().Mono() + deadline;
  return spec;
}

absl::StatusOr<std::string> RoundTrip(IoContext& io, Channel& channel, const std::string& meta,
                                      absl::Duration deadline, bool small) {
  TestCall call;
  CallGroup group;
  CallSpec spec = MakeSpec(FrameType::kPing, meta, deadline);
  spec.small = small;
  channel.Start(std::move(spec), &call, &group);
  io.Wait(group);
  EXPECT_EQ(call.ends, 1);
  if (!call.status->ok()) return *call.status;
  return call.meta;
}

}  // namespace cistern::transport
