// What the wire moves beside what the device moves: run it, and perftest, on one machine.
//   tools/rdma-vm -- .bazel/bin/transport/rdma/rdma_benchmark [SECONDS]
// One process, one loop at the store, one calling thread; registered memory at both ends, no
// digests.

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "transport/conformance/test_peer.h"
#include "transport/io_context.h"
#include "transport/rdma/extent_store_testing.h"
#include "transport/rdma/rdma.h"

namespace cistern::transport::rdma {
namespace {

constexpr int kRounds = 5;
constexpr size_t kMemory = 16 << 20;

template <typename T>
T Check(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(result);
}

struct Counts {
  uint64_t writes, reads, sends, completions, doorbells;
};
Counts Read(Host& host) {
  HostCounters& c = host.counters();
  return {c.writes, c.reads, c.sends, c.completions, c.doorbells};
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

struct Bench {
  std::shared_ptr<Host> store_host = Check(Host::Open({}));
  std::shared_ptr<Host> client_host = Check(Host::Open({}));
  TestMemory extent{kMemory};
  TestMemory own{kMemory};
  ExtentStore store{&extent};
  std::unique_ptr<WireServer> server;
  std::unique_ptr<IoContext> io = Check(IoContext::Create({}));
  std::unique_ptr<Channel> channel;

  Bench() {
    CISTERN_CHECK(extent.Register(store_host, MemoryRights::kLocal).ok());
    CISTERN_CHECK(own.Register(client_host, MemoryRights::kRemote).ok());
    RdmaServerOptions options;
    options.host = store_host;
    options.listen_addresses = {store_host->Addresses().front()};
    options.identity.token = "a token of thirty-two bytes or so";
    options.identity.peer_id = "store-id-16bytes";
    server = Check(ListenRdma(options, &store));
    RdmaChannelOptions dial;
    dial.host = client_host;
    dial.addresses = options.listen_addresses;
    dial.port = server->port();
    dial.identity.token = options.identity.token;
    channel = MakeRdmaChannel(io.get(), dial);
  }

  // `depth` chunks, asked for at once.
  void Batch(bool put, size_t chunk, size_t depth) {
    std::vector<TestCall> calls(depth);
    std::vector<std::unique_ptr<MemorySink>> sinks;
    CallGroup group;
    for (size_t i = 0; i < depth; ++i) {
      uint8_t* const at = own.data() + (i * chunk) % kMemory;
      CallSpec spec = MakeSpec(put ? FrameType::kPut : FrameType::kGet,
                               absl::StrCat(put ? "put " : "get ", chunk), absl::Seconds(60));
      spec.expected_bytes = chunk;
      if (put) {
        spec.payload = std::make_unique<MemorySource>(at, chunk);
      } else {
        sinks.push_back(std::make_unique<MemorySink>(at, chunk));
        calls[i].sink = sinks.back().get();
      }
      channel->Start(std::move(spec), &calls[i], &group);
    }
    io->Wait(group);
    for (const TestCall& call : calls) {
      if (!call.status->ok()) {
        std::fprintf(stderr, "%s\n", call.status->ToString().c_str());
        std::exit(1);
      }
    }
  }

  void Rate(bool put, size_t chunk, size_t depth, absl::Duration length) {
    const Clock& clock = Clock::Real();
    Batch(put, chunk, depth);
    std::vector<double> rates;
    size_t chunks = 0;
    const Counts store_before = Read(*store_host);
    const Counts client_before = Read(*client_host);
    const double cpu_before = CpuSeconds();
    for (int round = 0; round < kRounds; ++round) {
      const MonoTime start = clock.Mono();
      size_t moved = 0;
      while (clock.Mono() - start < length) {
        Batch(put, chunk, depth);
        moved += depth;
      }
      rates.push_back(static_cast<double>(moved * chunk) / 1e6 /
                      absl::ToDoubleSeconds(clock.Mono() - start));
      chunks += moved;
    }
    std::sort(rates.begin(), rates.end());
    const Counts store_after = Read(*store_host);
    const Counts client_after = Read(*client_host);
    const auto n = static_cast<double>(chunks);
    std::printf(
        "%s %7zu x %2zu: %6.1f MB/s (%.1f to %.1f), CPU %.1f s/GiB; a chunk, store: %.2f "
        "transfers, %.2f messages, %.2f completions, %.2f doorbells; client: %.2f messages, "
        "%.2f completions\n",
        put ? "put" : "get", chunk, depth, rates[kRounds / 2], rates.front(), rates.back(),
        (CpuSeconds() - cpu_before) / (n * static_cast<double>(chunk) / (1 << 30)),
        static_cast<double>(store_after.writes + store_after.reads - store_before.writes -
                            store_before.reads) /
            n,
        static_cast<double>(store_after.sends - store_before.sends) / n,
        static_cast<double>(store_after.completions - store_before.completions) / n,
        static_cast<double>(store_after.doorbells - store_before.doorbells) / n,
        static_cast<double>(client_after.sends - client_before.sends) / n,
        static_cast<double>(client_after.completions - client_before.completions) / n);
    std::fflush(stdout);
  }

  void Latency(size_t chunk, int times) {
    const Clock& clock = Clock::Real();
    std::vector<double> trips;
    for (int i = 0; i < times; ++i) {
      const MonoTime start = clock.Mono();
      Batch(/*put=*/false, chunk, 1);
      trips.push_back(absl::ToDoubleMicroseconds(clock.Mono() - start));
    }
    std::sort(trips.begin(), trips.end());
    std::printf("one get of %zu: p50 %.0f us, p99 %.0f us\n", chunk, trips[trips.size() / 2],
                trips[trips.size() * 99 / 100]);
  }
};

}  // namespace
}  // namespace cistern::transport::rdma

int main(int argc, char** argv) {
  const absl::Duration length = absl::Seconds(argc > 1 ? std::atof(argv[1]) : 2.0);
  cistern::transport::rdma::Bench bench;
  for (const bool put : {false, true}) {
    bench.Rate(put, 1 << 20, 16, length);
    bench.Rate(put, 64 << 10, 64, length);
  }
  bench.Latency(64 << 10, 300);
  return 0;
}
