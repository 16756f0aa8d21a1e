// The master's index at 5 million chunks from 16 stores: bytes a chunk, lookups a second, how long
// a slice holds the lock.
//   bazel run -c opt //master:index_benchmark
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/build_info.h"
#include "base/columns.h"
#include "base/status.h"
#include "benchmark/benchmark.h"
#include "master/core_testing.h"
#include "master/index.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

constexpr uint64_t kChunks = 5'000'000;
constexpr uint64_t kStores = 16;
constexpr uint32_t kLength = 65536;

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Ids that look like hashes: SplitMix64 of the number.
KeyId IdOf(uint64_t n) {
  KeyId id;
  for (int half = 0; half < 2; ++half) {
    uint64_t z = (2 * n + static_cast<uint64_t>(half) + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    std::memcpy(id.bytes.data() + 8 * half, &z, 8);
  }
  return id;
}

double Microseconds(absl::Duration d) { return absl::ToDoubleMicroseconds(d); }

// A master with kChunks chunks, filled through the stores' sessions.
class FullPool {
 public:
  FullPool() : pool_(Options()) {
    std::vector<SessionId> sessions;
    for (uint64_t s = 0; s < kStores; ++s) {
      // 94 % full: above the low watermark, nothing to evict.
      sessions.push_back(pool_.Connect(static_cast<int>(s), CapacityOfStore()));
    }
    const uint64_t before = ResidentBytes();
    std::vector<uint64_t> seq(kStores, 1);
    for (uint64_t n = 0; n < kChunks;) {
      const uint64_t s = n / kBatch % kStores;
      const uint64_t count = std::min(kBatch, kChunks - n);
      Report(sessions[s], &seq[s], n, count);
      n += count;
    }
    bytes_per_chunk_ = static_cast<double>(ResidentBytes() - before) / static_cast<double>(kChunks);
    accounted_per_chunk_ = static_cast<double>(pool_.core().Pool(pool_.now).index_bytes) /
                           static_cast<double>(kChunks);
  }

  TestPool& pool() { return pool_; }
  double bytes_per_chunk() const { return bytes_per_chunk_; }
  double accounted_per_chunk() const { return accounted_per_chunk_; }
  absl::Duration longest_step() const { return longest_step_; }

 private:
  static constexpr uint64_t kBatch = 1024;
  static MasterOptions Options() {
    MasterOptions options;
    options.hash_seed = 12345;
    return options;
  }
  static uint64_t CapacityOfStore() {
    return static_cast<uint64_t>(static_cast<double>(kChunks / kStores * kLength) / 0.94);
  }
  void Report(SessionId session, uint64_t* seq, uint64_t first, uint64_t count) {
    wire::StoreMessage message;
    wire::Delta& delta = *message.mutable_delta();
    delta.set_seq_first(*seq);
    ColumnWriter<uint64_t> versions(delta.mutable_versions(), count);
    ColumnWriter<uint32_t> lengths(delta.mutable_lengths(), count);
    delta.set_namespaces(std::string(4, '\0'));
    for (uint64_t i = 0; i < count; ++i) {
      delta.mutable_ids()->append(IdOf(first + i).view());
      versions.Set(i, *seq + i);
      lengths.Set(i, kLength);
    }
    *seq += count;
    SessionCall call(session, message);
    bool done = false;
    while (!done) {
      const MonoTime begin = Clock::Real().Mono();
      done = call.Step(pool_.core(), pool_.now);
      longest_step_ = std::max(longest_step_, Clock::Real().Mono() - begin);
    }
    CISTERN_CHECK(call.status().ok());
    std::vector<wire::MasterMessage> acks;
    pool_.core().TakeOutgoing(session, 100, &acks);
  }

  TestPool pool_;
  double bytes_per_chunk_ = 0;
  double accounted_per_chunk_ = 0;
  absl::Duration longest_step_;
};

FullPool& Full() {
  static FullPool& full = *new FullPool();
  return full;
}

std::vector<KeyId> RandomIds(size_t n, uint64_t seed) {
  std::vector<KeyId> ids;
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(IdOf((seed >> 24) % kChunks));
  }
  return ids;
}

void FindOneByOne(benchmark::State& state) {
  const Index& index = Full().pool().pool().index;
  const auto ids = RandomIds(1 << 20, 1);
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(index.Find(ids[i], Shard(0)));
    i = (i + 1) & ((1 << 20) - 1);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(FindOneByOne);

void FindBatch(benchmark::State& state) {
  const Index& index = Full().pool().pool().index;
  const auto batch = static_cast<size_t>(state.range(0));
  const auto ids = RandomIds(1 << 20, 2);
  const std::vector<Shard> shards(batch);
  std::vector<EntryIndex> out(batch);
  size_t at = 0;
  for (auto _ : state) {
    index.FindBatch(batch, &ids[at], shards.data(), out.data());
    at = at + 2 * batch > ids.size() ? 0 : at + batch;
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(FindBatch)->ArgName("keys")->Arg(16)->Arg(128)->Arg(1024);

// A client's lookup, message to message, as the frame service runs it.
void LookupCalls(benchmark::State& state) {
  TestPool& pool = Full().pool();
  const bool lease = state.range(1) != 0;
  const auto batch = static_cast<size_t>(state.range(0));
  const auto ids = RandomIds(1 << 20, 3);
  absl::Duration longest;
  size_t at = 0;
  for (auto _ : state) {
    wire::LookupRequest request;
    request.set_map_version(1);
    request.set_directory_version(pool.pool().stores.directory_version());
    request.set_ns_ref(pool.ns_ref());
    request.mutable_ids()->assign(reinterpret_cast<const char*>(&ids[at]), batch * KeyId::kBytes);
    request.set_no_lease(!lease);
    wire::LookupReply reply;
    LookupCall call(request, &reply);
    CISTERN_CHECK(call.Prepare().ok());
    bool done = false;
    while (!done) {
      const MonoTime begin = Clock::Real().Mono();
      done = call.Step(pool.core(), pool.now);
      longest = std::max(longest, Clock::Real().Mono() - begin);
    }
    CISTERN_CHECK(reply.leading_run() == batch);
    if (lease) pool.Release(reply.lease_id());
    at = at + 2 * batch > ids.size() ? 0 : at + batch;
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["longest_step_us"] = Microseconds(longest);
}
BENCHMARK(LookupCalls)
    ->ArgNames({"keys", "lease"})
    ->Args({1, 1})
    ->Args({128, 1})
    ->Args({1024, 0})
    ->Args({1024, 1})
    ->Args({6000, 1});

}  // namespace
}  // namespace cistern::master

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::cout << "build " << cistern::BuildMode() << ", commit " << cistern::CommitId() << "\n";
  if (cistern::BuildMode() != "opt") std::cout << "WARNING: not an optimised build\n";
  auto& full = cistern::master::Full();
  std::cout << absl::StreamFormat(
      "%d chunks of %d stores: %.1f bytes a chunk resident, %.1f counted; longest step of 512 "
      "records %.0f us\n",
      cistern::master::kChunks, cistern::master::kStores, full.bytes_per_chunk(),
      full.accounted_per_chunk(), cistern::master::Microseconds(full.longest_step()));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
