// How long a store that was killed takes until it serves again, and what share of its committed
// chunks it has kept. A child process fills a segment on tmpfs with small chunks and kills itself
// in the midst of a put; this process then does what a starting store does, and writes the snapshot
// that its master asks for.
//
//   bazel run -c opt //store:restart_benchmark [-- CHUNKS [FOLDER]]
//
// CHUNKS (default 1,000,000) of 4 KiB each; FOLDER (default a new one in /dev/shm) needs 4.2 KiB
// for each.
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/build_info.h"
#include "base/clock.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "store/chunk_store.h"

namespace cistern::store {
namespace {

constexpr uint64_t kChunkBytes = 4096;

template <typename T>
T Check(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(result);
}

ChunkName NameOf(uint64_t n) {
  ChunkName name;
  const uint64_t mixed = n * 0x9E3779B97F4A7C15u + 1;
  std::memcpy(name.id.bytes.data(), &n, 8);
  std::memcpy(name.id.bytes.data() + 8, &mixed, 8);
  return name;
}

SegmentOptions OptionsFor(const std::string& folder, uint64_t chunks) {
  SegmentOptions options;
  options.path = folder + "/dram-0";
  // A header for each 4 KiB of the segment, and 128 bytes of it for each header.
  options.bytes = RoundUp(chunks * (kChunkBytes + 160) + (uint64_t{16} << 20), 4096);
  options.expected_chunk_bytes = kChunkBytes;
  return options;
}

std::unique_ptr<ChunkStore> OpenStore(std::unique_ptr<Segment> segment, const std::string& folder) {
  std::vector<std::unique_ptr<Segment>> segments;
  segments.push_back(std::move(segment));
  ChunkStoreOptions options;
  options.hash_seed = 42;
  return Check(ChunkStore::Create(options, std::move(segments),
                                  Check(VersionCeiling::Open({folder, PoolId()})),
                                  Clock::Real().Wall()));
}

[[noreturn]] void FillAndDie(const std::string& folder, uint64_t chunks, int report_fd) {
  auto store =
      OpenStore(Check(Segment::Open(OptionsFor(folder, chunks), Clock::Real().Wall())), folder);
  NamespaceRecord record;
  record.name = "benchmark";
  record.id = DeriveNamespaceId("", record.name, "");
  const NamespaceIndex ns = Check(store->BindNamespace(record));
  CommitOptions commit;
  commit.digest_kind = wire::DIGEST_NONE;  // the bytes are not what is measured
  uint64_t committed = 0;
  for (uint64_t n = 0; n < chunks; ++n) {
    const PutItem item{NameOf(n), kChunkBytes, 0};
    PutAnswer answer;
    store->BeginPut(ns, {&item, 1}, {}, Clock::Real().Wall(), {&answer, 1});
    if (!answer.slot) break;
    std::memcpy(answer.slot.payload().data(), &n, sizeof(n));
    Check(store->Commit(std::move(answer.slot), commit, Clock::Real().Wall()));
    ++committed;
    store->log().Ack(n);
  }
  const PutItem item{NameOf(chunks), kChunkBytes, 0};
  PutAnswer under_way;
  store->BeginPut(ns, {&item, 1}, {}, Clock::Real().Wall(), {&under_way, 1});
  if (write(report_fd, &committed, sizeof(committed)) != sizeof(committed)) _exit(1);
  kill(getpid(), SIGKILL);
  _exit(1);
}

// What a step took: by the clock, and of the processor (the host may have other work).
struct Instant {
  MonoTime mono;
  absl::Duration cpu;
  static Instant Now() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return {Clock::Real().Mono(),
            absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime)};
  }
};
std::string Took(const Instant& from, const Instant& to) {
  return absl::StrFormat("%.3f s, %.3f s of CPU", absl::ToDoubleSeconds(to.mono - from.mono),
                         absl::ToDoubleSeconds(to.cpu - from.cpu));
}

// Bytes of all pages of a snapshot.
uint64_t WriteSnapshot(const ChunkStore& store, uint64_t* records) {
  uint64_t bytes = 0;
  std::optional<uint64_t> cursor = 0;
  while (cursor.has_value()) {
    wire::StoreMessage message;
    cursor = store.ReadPage(*cursor, 16'384, message.mutable_snapshot_page());
    *records += message.snapshot_page().records().ids().size() / KeyId::kBytes;
    bytes += message.SerializeAsString().size();
  }
  return bytes;
}

int Run(uint64_t chunks, const std::string& folder) {
  int report[2];
  if (pipe(report) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) FillAndDie(folder, chunks, report[1]);
  close(report[1]);
  uint64_t committed = 0;
  const bool told = read(report[0], &committed, sizeof(committed)) == sizeof(committed);
  int status = 0;
  waitpid(child, &status, 0);
  if (!told || !WIFSIGNALED(status)) {
    std::fprintf(stderr, "the filling process failed\n");
    return 1;
  }
  Clock& clock = Clock::Real();
  const Instant started = Instant::Now();
  auto segment = Check(Segment::Open(OptionsFor(folder, chunks), clock.Wall()));
  const Instant attached = Instant::Now();
  const auto store = OpenStore(std::move(segment), folder);
  const Instant recovered = Instant::Now();
  const RecoveryReport& report_of = store->recovery();
  uint64_t records = 0;
  const uint64_t snapshot_bytes = WriteSnapshot(*store, &records);
  const Instant told_master = Instant::Now();
  // Spot checks: the bytes that were put are there.
  const NamespaceIndex ns = *store->FindNamespace(DeriveNamespaceId("", "benchmark", ""));
  uint64_t wrong = 0;
  for (uint64_t n = 0; n < committed; n += 997) {
    const ChunkRef ref = store->Acquire(ns, NameOf(n), clock.Wall());
    uint64_t found = ~n;
    if (ref) std::memcpy(&found, ref.payload().data(), sizeof(found));
    wrong += found == n ? 0 : 1;
  }
  absl::PrintF("build %s, commit %s\n", std::string(BuildMode()), std::string(CommitId()));
  absl::PrintF("committed before the kill   %d\n", committed);
  absl::PrintF(
      "kept                        %d (%.4f %%), unfinished %d, damaged %d, wrong %d\n",
      report_of.recovered_chunks,
      100.0 * static_cast<double>(report_of.recovered_chunks) / static_cast<double>(committed),
      report_of.writing, report_of.damaged, wrong);
  absl::PrintF("attach (back every page)    %s\n", Took(started, attached));
  absl::PrintF("scan headers, build tables  %s\n", Took(attached, recovered));
  absl::PrintF("serving after               %s\n", Took(started, recovered));
  absl::PrintF("snapshot for the master     %s, %d records, %d bytes\n",
               Took(recovered, told_master), records, snapshot_bytes);
  const bool all = report_of.recovered_chunks == committed && records == committed && wrong == 0;
  return all ? 0 : 1;
}

}  // namespace
}  // namespace cistern::store

int main(int argc, char** argv) {
  const uint64_t chunks = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  std::string folder = argc > 2 ? argv[2] : "/dev/shm/cistern-restart-XXXXXX";
  if (argc <= 2 && mkdtemp(folder.data()) == nullptr) return 1;
  const int result = cistern::store::Run(chunks, folder);
  if (argc <= 2) std::filesystem::remove_all(folder);
  return result;
}
