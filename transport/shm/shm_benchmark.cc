// What the shared-memory wire moves beside memcpy, between two processes, one calling thread:
// chunks of 1 MiB out of and into 256 MiB, digested by the client as it does, and on a put by the
// store too.
//
//   bazel run -c opt //transport/shm:shm_benchmark -- [--seconds=1] [--rounds=5]

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/status.h"
#include "transport/shm/shm.h"

namespace cistern::transport {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
// Larger than the caches.
constexpr size_t kMemoryBytes = size_t{256} << 20;

// Gives memory chunk after chunk, digested 256 KiB at a time as a client's put is.
class Source final : public PayloadSource {
 public:
  Source(char* data, size_t bytes, bool digest) : data_(data), left_(bytes), digest_(digest) {}
  uint64_t remaining() const override { return left_; }
  void NextPieces(size_t max_bytes, size_t, std::vector<iovec>* out) override {
    size_t n = std::min(max_bytes, left_);
    if (digest_) {
      n = std::min(n, size_t{256} << 10);
      stream_.Update(data_, n);
    }
    out->push_back({data_, n});
    data_ += n;
    left_ -= n;
  }
  bool checked_by_digests() const override { return digest_; }

 private:
  char* data_;
  size_t left_;
  const bool digest_;
  DigestStream stream_;
};

class Sink final : public PayloadSink {
 public:
  Sink(char* data, size_t bytes) : data_(data), left_(bytes) {}
  void NextBuffers(size_t max_bytes, size_t, std::vector<iovec>* out) override {
    if (left_ > 0) out->push_back({data_, std::min(max_bytes, left_)});
  }
  absl::Status Landed(size_t bytes) override {
    stream_.Update(data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return absl::OkStatus();
  }
  absl::Status TakeFrom(const char* from, size_t bytes, size_t* taken) override {
    *taken = std::min(bytes, left_);
    stream_.CopyUpdate(data_, from, *taken);
    data_ += *taken;
    left_ -= *taken;
    return absl::OkStatus();
  }

 private:
  char* data_;
  size_t left_;
  DigestStream stream_;
};

// Request metas: {offset, bytes}.
struct Request {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class StoreHandler final : public RequestHandler {
 public:
  explicit StoreHandler(char* memory) : memory_(memory) {}
  void OnRequest(std::unique_ptr<ServerCall> call) override {
    Request request;
    CISTERN_CHECK(call->meta().size() == sizeof(request));
    std::memcpy(&request, call->meta().data(), sizeof(request));
    char* const at = memory_ + request.offset;
    if (call->type() == FrameType::kGet) {
      call->Reply(FrameType::kGetHead, "head", false,
                  std::make_unique<Source>(at, request.bytes, /*digest=*/false));
      call->Reply(FrameType::kGetDone, "done", true);
      return;
    }
    std::shared_ptr<ServerCall> shared = std::move(call);
    auto sink = std::make_shared<Sink>(at, request.bytes);
    shared->Reply(FrameType::kPutReady, "ready", false);
    shared->ReceivePayload(request.bytes, sink.get(), [shared, sink](absl::Status status) {
      CISTERN_CHECK(status.ok());
      shared->Reply(FrameType::kPutDone, "done", true);
    });
  }

 private:
  char* const memory_;
};

class Call final : public CallHandler {
 public:
  Call(PayloadSink* sink, std::unique_ptr<PayloadSource> source)
      : sink_(sink), source_(std::move(source)) {}
  absl::Status OnFrame(const Answer& answer, PayloadSink** sink,
                       std::unique_ptr<PayloadSource>* source) override {
    *sink = sink_;
    if (answer.type == FrameType::kPutReady) *source = std::move(source_);
    return absl::OkStatus();
  }
  void OnDone(absl::Status status) override { CISTERN_CHECK(status.ok()); }

 private:
  PayloadSink* const sink_;
  std::unique_ptr<PayloadSource> source_;
};

// A memfd, so that it may be lent.
char* SharedMemory(int* fd) {
  *fd = memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CISTERN_CHECK(*fd >= 0 && ftruncate(*fd, kMemoryBytes) == 0 &&
                fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  // As AllocateBuffer does.
  void* data = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
  CISTERN_CHECK(data != MAP_FAILED && fcntl(*fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
  std::memset(data, 7, kMemoryBytes);
  return static_cast<char*>(data);
}

pid_t StartStore(const std::string& path) {
  int ready[2];
  CISTERN_CHECK(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = -1;
    StoreHandler handler(SharedMemory(&fd));  // as a segment on tmpfs is
    ShmServerOptions options;
    options.socket_path = path;
    auto server = ListenShm(options, &handler);
    CISTERN_CHECK(server.ok() && write(ready[1], "y", 1) == 1);
    for (;;) pause();
  }
  char byte;
  CISTERN_CHECK(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

double Seconds(MonoTime since) { return absl::ToDoubleSeconds(Clock::Real().Mono() - since); }

// Bytes a second of `move`, which moves `bytes` at an offset.
double Rate(double seconds, size_t bytes, const std::function<void(uint64_t)>& move) {
  const MonoTime start = Clock::Real().Mono();
  uint64_t total = 0;
  uint64_t at = 0;
  while (Seconds(start) < seconds) {
    move(at);
    total += bytes;
    at = (at + bytes) % kMemoryBytes;
  }
  return static_cast<double>(total) / Seconds(start);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(double seconds, int rounds) {
  std::printf("build %s, commit %s\n", std::string(BuildMode()).c_str(),
              std::string(CommitId()).c_str());
  char folder[] = "/tmp/shm_benchmark.XXXXXX";
  CISTERN_CHECK(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/store.sock";
  const pid_t store = StartStore(path);
  int fd = -1;
  char* const lent = SharedMemory(&fd);
  auto* const foreign = static_cast<char*>(std::malloc(kMemoryBytes));
  std::memset(foreign, 7, kMemoryBytes);
  auto table = std::make_shared<LentMemory>();
  CISTERN_CHECK(table->Add(lent, kMemoryBytes, fd).ok());
  {
    auto io = IoContext::Create({});
    CISTERN_CHECK(io.ok());
    ShmChannelOptions options;
    options.socket_path = path;
    options.connections = 1;
    options.lent = table;
    auto channel = MakeShmChannel(io->get(), options);
    const auto call = [&](FrameType type, uint64_t at, size_t bytes, char* memory) {
      Sink sink(memory + at, bytes);
      const bool get = type == FrameType::kGet;
      Call handler(get ? &sink : nullptr,
                   get ? nullptr : std::make_unique<Source>(memory + at, bytes, true));
      const Request request{at, bytes};
      CallSpec spec;
      spec.type = type;
      spec.meta.assign(reinterpret_cast<const char*>(&request), sizeof(request));
      spec.deadline = Clock::Real().Mono() + absl::Seconds(10);
      CallGroup group;
      channel->Start(std::move(spec), &handler, &group);
      (*io)->Wait(group);
    };
    struct Case {
      std::string name;
      size_t bytes;
      std::function<void(uint64_t)> move;
      std::vector<double> rates = {};
    };
    std::vector<Case> cases;
    cases.push_back({"memcpy", kChunkBytes, [&](uint64_t at) {
                       std::memcpy(foreign + at, lent + (at + kMemoryBytes / 2) % kMemoryBytes,
                                   kChunkBytes);
                     }});
    for (const size_t chunks : {size_t{1}, size_t{16}}) {
      const size_t bytes = chunks * kChunkBytes;
      const std::string of = std::to_string(chunks) + " x 1 MiB";
      for (char* memory : {lent, foreign}) {
        const std::string what = memory == lent ? ", AllocateBuffer" : ", foreign";
        cases.push_back({"get " + of + what, bytes, [&call, bytes, memory](uint64_t at) {
                           call(FrameType::kGet, at, bytes, memory);
                         }});
        cases.push_back({"put " + of + what, bytes, [&call, bytes, memory](uint64_t at) {
                           call(FrameType::kPut, at, bytes, memory);
                         }});
      }
    }
    for (Case& one : cases) Rate(seconds / 5, one.bytes, one.move);  // pages, caches
    for (int round = 0; round < rounds; ++round) {
      for (Case& one : cases) one.rates.push_back(Rate(seconds, one.bytes, one.move));
    }
    const double base = Median(cases[0].rates);
    for (const Case& one : cases) {
      const double rate = Median(one.rates);
      std::printf("%-32s %6.2f GB/s (%.2f to %.2f), %.2f of memcpy\n", one.name.c_str(), rate / 1e9,
                  *std::min_element(one.rates.begin(), one.rates.end()) / 1e9,
                  *std::max_element(one.rates.begin(), one.rates.end()) / 1e9, rate / base);
    }
  }
  kill(store, SIGKILL);
  waitpid(store, nullptr, 0);
  unlink(path.c_str());
  rmdir(folder);
  return 0;
}

}  // namespace
}  // namespace cistern::transport

int main(int argc, char** argv) {
  double seconds = 1;
  int rounds = 5;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seconds=", 10) == 0) {
      seconds = std::atof(argv[i] + 10);
    } else if (std::strncmp(argv[i], "--rounds=", 9) == 0) {
      rounds = std::max(1, std::atoi(argv[i] + 9));
    } else {
      std::fprintf(stderr, "usage: shm_benchmark [--seconds=N] [--rounds=N]\n");
      return 2;
    }
  }
  return cistern::transport::Main(seconds, rounds);
}
