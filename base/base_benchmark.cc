// The costs that every chunk pays: key ids, part digests, roots, checksums.
//   bazel run -c opt //base:base_benchmark
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "base/build_info.h"
#include "base/crc32c.h"
#include "base/digest.h"
#include "base/key_hash.h"
#include "benchmark/benchmark.h"

namespace cistern {
namespace {

const NamespaceId kNamespace = DeriveNamespaceId("", "benchmark", "");

std::string Bytes(size_t n) {
  std::string out(n, '\0');
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<char>(i % 251);
  return out;
}

void KeyHash(benchmark::State& state) {
  const KeyHasher hasher(kNamespace);
  const std::string key = Bytes(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(hasher.Hash(key));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(KeyHash)->ArgName("bytes")->Arg(8)->Arg(32)->Arg(53)->Arg(64)->Arg(1024);

// Distinct keys, as a client hashes a prompt's blocks.
void KeyHashMany(benchmark::State& state) {
  const KeyHasher hasher(kNamespace);
  const size_t n = 1024;
  std::vector<std::string> keys;
  for (size_t i = 0; i < n; ++i) keys.push_back(Bytes(24) + std::to_string(10'000'000 + i));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<KeyId> ids(n);
  for (auto _ : state) {
    hasher.HashMany(views, ids.data());
    benchmark::DoNotOptimize(ids.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(n));
}
BENCHMARK(KeyHashMany);

void PartDigestOf(benchmark::State& state) {
  const std::string data = Bytes(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(DigestOf(data.data(), data.size()));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(PartDigestOf)->ArgName("bytes")->Arg(4 << 10)->Arg(64 << 10)->Arg(1 << 20)->Arg(64 << 20);

// Pieces of 16 KiB, as a receive hands them over.
void PartDigestStreamed(benchmark::State& state) {
  const std::string data = Bytes(static_cast<size_t>(state.range(0)));
  constexpr size_t kPiece = 16 << 10;
  DigestStream stream;
  for (auto _ : state) {
    stream.Reset();
    for (size_t at = 0; at < data.size(); at += kPiece) stream.Update(data.data() + at, kPiece);
    benchmark::DoNotOptimize(stream.Finish());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(PartDigestStreamed)->ArgName("bytes")->Arg(64 << 10)->Arg(1 << 20);

void Root(benchmark::State& state) {
  std::vector<PartDigest> parts(static_cast<size_t>(state.range(0)), 0x123456789ABCDEF0);
  const ChunkName name{KeyHasher(kNamespace).Hash("key"), Shard(3)};
  for (auto _ : state) benchmark::DoNotOptimize(RootDigest(parts, parts.size() << 20, name));
}
BENCHMARK(Root)->ArgName("parts")->Arg(1)->Arg(16)->Arg(64)->Arg(65)->Arg(1024);

// What a root over the parts and the length alone would cost: the price of covering the name.
void RootWithoutName(benchmark::State& state) {
  std::vector<uint64_t> input(static_cast<size_t>(state.range(0)) + 1, 0x123456789ABCDEF0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(DigestOf(input.data(), input.size() * sizeof(uint64_t)));
  }
}
BENCHMARK(RootWithoutName)->ArgName("parts")->Arg(1)->Arg(16)->Arg(64);

void Checksum(benchmark::State& state) {
  const std::string data = Bytes(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(Crc32c(data.data(), data.size()));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Checksum)->ArgName("bytes")->Arg(116)->Arg(1 << 10)->Arg(1 << 20);

void Hmac(benchmark::State& state) {
  const std::string key = Bytes(32);
  const std::string data = Bytes(64);
  for (auto _ : state) benchmark::DoNotOptimize(HmacSha256(key, data));
}
BENCHMARK(Hmac);

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  std::cerr << "build " << cistern::BuildMode() << ", commit " << cistern::CommitId() << "\n";
  if (cistern::BuildMode() != "opt") std::cerr << "WARNING: not an optimised build\n";
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
