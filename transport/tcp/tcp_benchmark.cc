// What the TCP wire costs beside bare sockets, in one process and one run: streams of 1 MiB answers
// against a bare pair that moves the same bytes, and small calls against a bare echo.
//
//   bazel run -c opt //transport/tcp:tcp_benchmark -- [--seconds=2]

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/status.h"
#include "transport/stream/socket.h"
#include "transport/tcp/tcp.h"

namespace cistern::transport {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
// Both ends' working sets: larger than the caches.
constexpr size_t kMemoryBytes = size_t{256} << 20;
constexpr size_t kBatchChunks = 16;

char* TouchedMemory() {
  auto* memory = static_cast<char*>(std::malloc(kMemoryBytes));
  CISTERN_CHECK(memory != nullptr);
  std::memset(memory, 7, kMemoryBytes);
  return memory;
}

class MemorySource final : public PayloadSource {
 public:
  MemorySource(const char* data, size_t bytes) : data_(data), left_(bytes) {}
  uint64_t remaining() const override { return left_; }
  void NextPieces(size_t max_bytes, size_t, std::vector<iovec>* out) override {
    const size_t n = std::min(max_bytes, left_);
    out->push_back({const_cast<char*>(data_), n});
    data_ += n;
    left_ -= n;
  }

 private:
  const char* data_;
  size_t left_;
};

class MemorySink final : public PayloadSink {
 public:
  MemorySink(char* data, size_t bytes, bool digest) : data_(data), left_(bytes), digest_(digest) {}
  void NextBuffers(size_t max_bytes, size_t, std::vector<iovec>* out) override {
    if (left_ > 0) out->push_back({data_, std::min(max_bytes, left_)});
  }
  absl::Status Landed(size_t bytes) override {
    if (digest_) stream_.Update(data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return absl::OkStatus();
  }

 private:
  char* data_;
  size_t left_;
  const bool digest_;
  DigestStream stream_;
};

// "g" + offset: a batch from there; anything else: an echo.
class BenchHandler final : public RequestHandler {
 public:
  explicit BenchHandler(const char* memory) : memory_(memory) {}
  void OnRequest(std::unique_ptr<ServerCall> call) override {
    const std::string_view meta = call->meta();
    if (!meta.empty() && meta[0] == 'g') {
      uint64_t offset = 0;
      std::memcpy(&offset, meta.data() + 1, sizeof(offset));
      call->Reply(FrameType::kGetHead, "head", false,
                  std::make_unique<MemorySource>(memory_ + offset, kBatchChunks * kChunkBytes));
      call->Reply(FrameType::kGetDone, "done", true);
    } else {
      call->Reply(FrameType::kPong, std::string(meta), true);
    }
  }

 private:
  const char* memory_;
};

class BenchCall final : public CallHandler {
 public:
  explicit BenchCall(PayloadSink* sink) : sink_(sink) {}
  absl::Status OnFrame(const Answer&, PayloadSink** sink,
                       std::unique_ptr<PayloadSource>*) override {
    *sink = sink_;
    return absl::OkStatus();
  }
  void OnDone(absl::Status status) override { CISTERN_CHECK(status.ok()); }

 private:
  PayloadSink* const sink_;
};

double Seconds(MonoTime since) { return absl::ToDoubleSeconds(Clock::Real().Mono() - since); }

// Two connected TCP sockets over loopback, blocking.
std::pair<int, int> BarePair() {
  auto addresses = ResolveHost("127.0.0.1", 0, true);
  const int listener = *ListenOn(addresses->front());
  const SocketAddress address = *LocalAddress(listener);
  const int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CISTERN_CHECK(connect(one, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) ==
                0);
  int other = -1;
  while (other < 0) other = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  close(listener);
  SetNoDelay(one);
  SetNoDelay(other);
  return {one, other};
}

double BareStream(const char* from, char* to, double seconds, bool digest) {
  const auto [reader, writer] = BarePair();
  std::thread sender([fd = writer, from] {
    for (size_t at = 0;; at = (at + kChunkBytes) % kMemoryBytes) {
      size_t sent = 0;
      while (sent < kChunkBytes) {
        const ssize_t n = send(fd, from + at + sent, kChunkBytes - sent, MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += static_cast<size_t>(n);
      }
    }
  });
  const MonoTime start = Clock::Real().Mono();
  DigestStream stream;
  uint64_t total = 0;
  size_t at = 0;
  while (Seconds(start) < seconds) {
    for (size_t left = kBatchChunks * kChunkBytes; left > 0;) {
      const size_t want = std::min({left, size_t{256} << 10, kMemoryBytes - at});
      const ssize_t n = recv(reader, to + at, want, 0);
      CISTERN_CHECK(n > 0);
      if (digest) stream.Update(to + at, static_cast<size_t>(n));
      at = (at + static_cast<size_t>(n)) % kMemoryBytes;
      left -= static_cast<size_t>(n);
      total += static_cast<uint64_t>(n);
    }
  }
  const double rate = static_cast<double>(total) / Seconds(start);
  shutdown(reader, SHUT_RDWR);
  close(reader);
  sender.join();
  close(writer);
  return rate;
}

double WireStream(IoContext& io, Channel& channel, char* to, double seconds, bool digest) {
  const MonoTime start = Clock::Real().Mono();
  uint64_t total = 0;
  uint64_t at = 0;
  constexpr size_t kBatchBytes = kBatchChunks * kChunkBytes;
  while (Seconds(start) < seconds) {
    MemorySink sink(to + at, kBatchBytes, digest);
    BenchCall call(&sink);
    CallGroup group;
    CallSpec spec;
    spec.type = FrameType::kGet;
    spec.meta = "g" + std::string(reinterpret_cast<const char*>(&at), sizeof(at));
    spec.deadline = Clock::Real().Mono() + absl::Seconds(10);
    spec.expected_bytes = kBatchBytes;
    channel.Start(std::move(spec), &call, &group);
    io.Wait(group);
    total += kBatchBytes;
    at = (at + kBatchBytes) % kMemoryBytes;
  }
  return static_cast<double>(total) / Seconds(start);
}

double BareEcho(size_t bytes, double seconds) {
  const auto [caller, server] = BarePair();
  std::thread echo([fd = server] {
    std::vector<char> buffer(1 << 16);
    for (;;) {
      const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
      if (n <= 0 || send(fd, buffer.data(), static_cast<size_t>(n), MSG_NOSIGNAL) != n) return;
    }
  });
  std::vector<char> message(bytes, 'x');
  const MonoTime start = Clock::Real().Mono();
  uint64_t calls = 0;
  while (Seconds(start) < seconds) {
    CISTERN_CHECK(send(caller, message.data(), bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
    for (size_t got = 0; got < bytes;) {
      got += static_cast<size_t>(recv(caller, message.data() + got, bytes - got, 0));
    }
    ++calls;
  }
  const double rate = static_cast<double>(calls) / Seconds(start);
  shutdown(caller, SHUT_RDWR);
  echo.join();
  close(caller);
  close(server);
  return rate;
}

double WireEcho(IoContext& io, Channel& channel, size_t bytes, double seconds) {
  const MonoTime start = Clock::Real().Mono();
  uint64_t calls = 0;
  while (Seconds(start) < seconds) {
    BenchCall call(nullptr);
    CallGroup group;
    CallSpec spec;
    spec.type = FrameType::kPing;
    spec.meta.assign(bytes - kFrameHeaderBytes, 'x');
    spec.deadline = Clock::Real().Mono() + absl::Seconds(10);
    spec.small = true;
    channel.Start(std::move(spec), &call, &group);
    io.Wait(group);
    ++calls;
  }
  return static_cast<double>(calls) / Seconds(start);
}

int Main(double seconds) {
  std::printf("build %s, commit %s\n", std::string(BuildMode()).c_str(),
              std::string(CommitId()).c_str());
  char* const from = TouchedMemory();
  char* const to = TouchedMemory();
  BenchHandler handler(from);
  auto server = ListenTcp({}, &handler);
  CISTERN_CHECK(server.ok());
  auto io = IoContext::Create({});
  CISTERN_CHECK(io.ok());
  TcpChannelOptions options;
  options.host = "127.0.0.1";
  options.port = (*server)->port();
  auto channel = MakeTcpChannel(io->get(), options);
  for (const bool digest : {false, true}) {
    const double bare = BareStream(from, to, seconds, digest);
    const double wire = WireStream(**io, *channel, to, seconds, digest);
    std::printf("1 MiB get%s: %.2f GB/s, bare pair %.2f, ratio %.2f\n", digest ? ", digested" : "",
                wire / 1e9, bare / 1e9, wire / bare);
  }
  for (const size_t bytes : {size_t{64}, size_t{4096}, size_t{16'384}}) {
    const double bare = BareEcho(bytes, seconds);
    const double wire = WireEcho(**io, *channel, bytes, seconds);
    std::printf("echo of %zu bytes: %.0f calls/s, bare echo %.0f, ratio %.2f\n", bytes, wire, bare,
                wire / bare);
  }
  channel.reset();
  (*server)->Stop();
  std::free(from);
  std::free(to);
  return 0;
}

}  // namespace
}  // namespace cistern::transport

int main(int argc, char** argv) {
  double seconds = 2;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seconds=", 10) == 0) {
      seconds = std::atof(argv[i] + 10);
    } else {
      std::fprintf(stderr, "usage: tcp_benchmark [--seconds=N]\n");
      return 2;
    }
  }
  return cistern::transport::Main(seconds);
}
