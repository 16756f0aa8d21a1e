// Both ends of a conversation for transport tests: a server that does what the request's meta
// says, sources and sinks of odd shapes, and a caller that records what it sees.
#ifndef CISTERN_TRANSPORT_CONFORMANCE_TEST_PEER_H_
#define CISTERN_TRANSPORT_CONFORMANCE_TEST_PEER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "transport/channel.h"
#include "transport/io_context.h"
#include "transport/server.h"

namespace cistern::transport {

// Byte i of stream `seed`: differs between neighbours, streams and 256-byte rows.
inline uint8_t PatternByte(uint32_t seed, uint64_t i) {
  return static_cast<uint8_t>(i * 131 + (i >> 8) * 17 + seed * 29 + 5);
}
std::string Pattern(uint32_t seed, uint64_t bytes);

// Gives `data` in pieces of at most `piece` bytes.
class PatternSource final : public PayloadSource {
 public:
  PatternSource(std::string data, size_t piece, std::atomic<int>* destroyed = nullptr)
      : data_(std::move(data)), piece_(piece), destroyed_(destroyed) {}
  ~PatternSource() override {
    if (destroyed_ != nullptr) destroyed_->fetch_add(1);
  }
  uint64_t remaining() const override { return data_.size() - position_; }
  void NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) override;

 private:
  std::string data_;
  const size_t piece_;
  std::atomic<int>* const destroyed_;
  size_t position_ = 0;
};

// Fills `bytes` of memory in pieces of at most `piece` bytes; Landed may be made to fail.
class PatternSink final : public PayloadSink {
 public:
  PatternSink(char* memory, size_t bytes, size_t piece)
      : memory_(memory), bytes_(bytes), piece_(piece) {}
  void NextBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) override;
  absl::Status Landed(size_t bytes) override;
  size_t landed() const { return landed_; }
  std::function<absl::Status(size_t landed)> on_landed;

 private:
  char* const memory_;
  const size_t bytes_;
  const size_t piece_;
  size_t landed_ = 0;
};

// Serves by the words of the meta:
//   echo TEXT             answers TEXT
//   thread TEXT           the same from another thread
//   fail TEXT             NotFound TEXT
//   drop                  lets the call go without an answer
//   hold                  keeps the call until it is aborted, or ReleaseHeld
//   get N PIECE SEED      GetHead, the stream in pieces, GetDone
//   short N PIECE SEED    a final GetHead with the payload
//   put N PIECE SEED      takes N bytes in line, answers whether they were right
//   twice N PIECE SEED    the same by two receives
//   ready N PIECE SEED    the same after a PutReady
//   ignore                answers without taking the payload
//   early                 PutReady, then a failure without taking anything
//   protocol              ProtocolError
//   until MS WORDS        as WORDS say, with a deadline MS after it came
class TestHandler final : public RequestHandler {
 public:
  TestHandler() = default;
  ~TestHandler() override;
  void OnRequest(std::unique_ptr<ServerCall> call) override;
  void OnConnected(ServerConnection& connection) override;
  void OnDisconnected(ServerConnection& connection) override;

  // Ends what is held with "released".
  void ReleaseHeld();
  int held() const;
  // Waits for the threads of `thread` calls.
  void JoinThreads();
  // Blocks until `done` is true, or fails the test after 10 s.
  void Await(const std::function<bool()>& done) const;

  std::atomic<int> connected{0};
  std::atomic<int> disconnected{0};
  std::atomic<int> requests{0};
  std::atomic<int> aborts{0};
  std::atomic<int> sent_ok{0};
  std::atomic<int> sent_failed{0};
  std::atomic<int> received_ok{0};
  std::atomic<int> received_failed{0};
  std::atomic<int> sources_destroyed{0};

 private:
  struct Held;
  void Get(std::unique_ptr<ServerCall> call, const std::vector<std::string>& words);
  void Short(std::unique_ptr<ServerCall> call, const std::vector<std::string>& words);
  void Put(std::shared_ptr<ServerCall> call, const std::vector<std::string>& words);
  void Twice(std::shared_ptr<ServerCall> call, const std::vector<std::string>& words);
  void Notify();

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<std::shared_ptr<ServerCall>> held_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

// A call as the suite makes it.
class TestCall final : public CallHandler {
 public:
  TestCall() = default;

  absl::Status OnFrame(const Answer& answer, PayloadSink** sink,
                       std::unique_ptr<PayloadSource>* source) override;
  void OnDone(absl::Status status) override;

  // What OnFrame gives the wire.
  PayloadSink* sink = nullptr;
  std::function<std::unique_ptr<PayloadSource>()> after_ready;
  std::function<absl::Status(const Answer&)> on_frame;
  std::function<void()> on_done;

  // What was seen; read after the call has ended.
  std::vector<FrameType> frames;
  std::string meta;  // of the last frame
  uint64_t payload_bytes = 0;
  std::optional<absl::Status> status;
  int ends = 0;
};

// The meta-driven request.
CallSpec MakeSpec(FrameType type, std::string meta, absl::Duration deadline);
// Runs one call to its end. Returns its meta or its error.
absl::StatusOr<std::string> RoundTrip(IoContext& io, Channel& channel, const std::string& meta,
                                      absl::Duration deadline = absl::Seconds(20),
                                      bool small = true);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_CONFORMANCE_TEST_PEER_H_
