#include "tools/poolbench/options.h"

#include <CLI/CLI.hpp>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/string_view.h"
#include "tools/ctl/table.h"
#include "tools/output_path.h"

namespace cistern::poolbench {
namespace {

constexpr char kFooter[] = R"(
Operations that are rates, measured in rounds, medians beside their limits:
  put, get    chunks of --chunk-bytes, --batch a call, from or into --spans pieces each
  lookup      --batch keys a call, ids ready, with a lease unless --no-lease
  mixed       a share of --gets of the calls are gets, the rest puts of other chunks
Scenarios, which run once and end in a list of figures:
  overload    puts --overload-times the pool's bytes and looks each chunk up (which leases it)
              as soon as it can be seen; the rate over time, and what was refused
  fill        which share of a full segment holds payload; high watermark 0.98
  replay      a trace through the client, as tools/demo does it, for its rates and latencies
  index       a real master with --index-stores stores that are played (real sessions, no
              bytes): bytes a chunk, lookups, latencies while chunks are evicted, the longest
              hold of its lock, how long it needs to know all chunks again after a restart
Without an operation, the usual ones: get and put of 1MiB and 64KiB chunks, lookup of 1,024
keys. --case, repeated, names several: --case "get chunk=1MiB batch=16 spans=64".

Starts a pool of its own on loopback and removes it, unless --master names one. Every byte got
is checked against its digest, as always.

--baseline measures the limits in the same run, turn by turn with ours: a bare TCP pair that
moves the same bytes between working sets as large as ours over as many connections, a copy in
memory and one that digests what it copied while it is in the cache; for lookups, an echo of
their bytes over bare TCP and over gRPC; for gets of up to 64KiB a call a bare round trip.

Examples:
  poolbench --baseline
  poolbench get --chunk-bytes 64KiB --batch 64 --seconds 5
  poolbench get --chunk-bytes 4KiB --batch 1 --baseline     # latency beside a round trip's
  poolbench put --wire shm --memory foreign --baseline
  poolbench lookup --batch 1024 --threads 2 --json out.json
  poolbench index --index-chunks 1000000

Exit codes: 0 measured; 1 something failed; 2 wrong flags.)";

constexpr Kind kKinds[] = {Kind::kPut,      Kind::kGet,  Kind::kLookup, Kind::kMixed,
                           Kind::kOverload, Kind::kFill, Kind::kReplay, Kind::kIndex};

void AddSize(CLI::App& app, const std::string& name, uint64_t& value, const std::string& help,
             const std::string& group = "") {
  CLI::Option* option =
      app.add_option_function<std::string>(
             name,
             [&value, name](const std::string& text) {
               const absl::StatusOr<uint64_t> bytes = ParseSize(text);
               if (!bytes.ok()) {
                 throw CLI::ValidationError(name, std::string(StdView(bytes.status().message())));
               }
               value = *bytes;
             },
             help)
          ->type_name("SIZE");
  if (!group.empty()) option->group(group);
}

std::vector<Case> UsualCases() {
  return {{.kind = Kind::kGet, .chunk_bytes = 1 << 20, .batch = 16},
          {.kind = Kind::kPut, .chunk_bytes = 1 << 20, .batch = 16},
          {.kind = Kind::kGet, .chunk_bytes = 64 << 10, .batch = 64},
          {.kind = Kind::kPut, .chunk_bytes = 64 << 10, .batch = 64},
          {.kind = Kind::kLookup, .chunk_bytes = 4096, .batch = 1024}};
}

Case DefaultsOf(Kind kind) {
  Case one;
  one.kind = kind;
  if (kind == Kind::kLookup) {
    one.chunk_bytes = kMinChunkBytes;
    one.batch = 1024;
  } else if (!IsRate(kind)) {
    one.chunk_bytes = 64 << 10;
    one.batch = 16;
  }
  return one;
}

absl::StatusOr<Kind> KindOf(const std::string& name) {
  for (const Kind kind : kKinds) {
    if (name == KindName(kind)) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat("no operation is called '", name, "'"));
}

absl::Status CheckCase(const Case& one, const Options& options) {
  if (one.chunk_bytes < kMinChunkBytes || one.chunk_bytes > kMaxChunkBytes) {
    return absl::InvalidArgumentError("--chunk-bytes: a chunk has 4 KiB to 1 GiB");
  }
  if (one.batch == 0 || one.batch > 1'000'000) {
    return absl::InvalidArgumentError("--batch: 1 to 1,000,000");
  }
  if (one.spans == 0 || one.spans > 4096 || one.chunk_bytes % one.spans != 0) {
    return absl::InvalidArgumentError("--spans: 1 to 4,096, and a whole part of the chunk's bytes");
  }
  if (one.gets < 0 || one.gets > 1) return absl::InvalidArgumentError("--gets: 0 to 1");
  if (IsRate(one.kind) && one.chunk_bytes * one.batch > options.working_set_bytes) {
    return absl::InvalidArgumentError("--working-set holds less than one call's chunks");
  }
  if (!IsRate(one.kind) && !options.master.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", KindName(one.kind), "' needs a pool of its own: without --master"));
  }
  if (!IsRate(one.kind) && one.kind != Kind::kIndex &&
      one.chunk_bytes * one.batch * 8 > options.pool_bytes) {
    return absl::InvalidArgumentError("--pool-bytes holds fewer than eight calls' chunks");
  }
  return absl::OkStatus();
}

// What the options of one operation were given as; 0 or less = not given.
struct CaseFlags {
  uint64_t chunk_bytes = 0;
  uint64_t batch = 0;
  uint64_t spans = 0;
  double gets = -1;
  bool no_lease = false;

  bool any() const { return chunk_bytes != 0 || batch != 0 || spans != 0 || gets >= 0 || no_lease; }
  void ApplyTo(Case& one) const {
    if (chunk_bytes != 0) one.chunk_bytes = chunk_bytes;
    if (batch != 0) one.batch = batch;
    if (spans != 0) one.spans = spans;
    if (gets >= 0) one.gets = gets;
    if (no_lease) one.lease = false;
  }
};

void AddCaseOptions(CLI::App& app, CaseFlags& flags) {
  constexpr char kGroup[] = "The operation";
  AddSize(app, "--chunk-bytes", flags.chunk_bytes,
          "bytes of a chunk (1MiB; lookup: 4KiB; scenarios: 64KiB)", kGroup);
  app.add_option("--batch", flags.batch, "chunks, or keys, a call (16; lookup: 1024)")
      ->check(CLI::Range(1, 1'000'000))
      ->group(kGroup);
  app.add_option("--spans", flags.spans, "pieces of memory that make a chunk, far apart (1)")
      ->check(CLI::Range(1, 4096))
      ->group(kGroup);
  app.add_option("--gets", flags.gets, "mixed: the share of calls that are gets (0.8)")
      ->check(CLI::Range(0.0, 1.0))
      ->group(kGroup);
  app.add_flag("--no-lease", flags.no_lease, "lookup: takes none")->group(kGroup);
}

void AddScenarioOptions(CLI::App& app, Options& options) {
  constexpr char kGroup[] = "Scenarios";
  AddSize(app, "--pool-bytes", options.pool_bytes, "overload, fill, replay: the pool's (256MiB)",
          kGroup);
  app.add_option("--overload-times", options.overload_times, "bytes put, in pools")
      ->check(CLI::Range(1.0, 1000.0))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--trace", options.trace, "replay: JSON lines (default: generated)")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--requests", options.requests, "replay: the first so many (all; generated: 2000)")
      ->group(kGroup);
  app.add_option("--index-stores", options.index_stores, "stores that are played")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--index-chunks", options.index_chunks, "chunks that they hold in all")
      ->check(CLI::Range(10'000, 150'000'000))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--evictions", options.evictions, "chunks evicted while lookups are timed")
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--evictions-per-second", options.evictions_per_second, "and how fast")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--rebuild-chunks", options.rebuild_chunks,
                 "chunks that a restarted master is told of; 0 = no restart")
      ->capture_default_str()
      ->group(kGroup);
}

void AddRunOptions(CLI::App& app, Options& options) {
  app.add_option("--wire", options.wire, "auto, tcp, shm or rdma")
      ->check(CLI::IsMember({"auto", "tcp", "shm", "rdma"}))
      ->capture_default_str();
  app.add_option("--memory", options.memory,
                 "allocated: by the library; foreign: the caller's own, registered")
      ->check(CLI::IsMember({"allocated", "foreign"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "calling threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each round")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "whose median is shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--stores", options.stores, "of the pool that is started")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  AddSize(app, "--working-set", options.working_set_bytes, "bytes put and got (512MiB)");
  app.add_flag("--baseline", options.baseline, "measure the limits too");
  app.add_option("--json", options.json, "write the results there as well")->type_name("FILE");
  app.add_option("--master", options.master, "measure this pool: its master's data port")
      ->type_name("HOST:PORT");
  app.add_option("--token-file", options.token_file, "that pool's token")->type_name("FILE");
  app.add_option("--commit", options.commit)->group("");  // hidden; for scripts
}

// Throws CLI's error.
std::vector<Case> ChooseCases(const std::string& operation, const std::vector<std::string>& texts,
                              const CaseFlags& flags) {
  if (!operation.empty()) {
    if (!texts.empty()) throw CLI::ValidationError("--case and an operation exclude each other");
    Case one = DefaultsOf(*KindOf(operation));
    flags.ApplyTo(one);
    return {one};
  }
  if (flags.any()) {
    throw CLI::ValidationError("--chunk-bytes, --batch and the like need an operation");
  }
  if (texts.empty()) return UsualCases();
  std::vector<Case> cases;
  for (const std::string& text : texts) {
    const absl::StatusOr<Case> one = ParseCase(text);
    if (!one.ok()) {
      throw CLI::ValidationError("--case", std::string(StdView(one.status().message())));
    }
    cases.push_back(*one);
  }
  return cases;
}

}  // namespace

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kPut:
      return "put";
    case Kind::kGet:
      return "get";
    case Kind::kLookup:
      return "lookup";
    case Kind::kMixed:
      return "mixed";
    case Kind::kOverload:
      return "overload";
    case Kind::kFill:
      return "fill";
    case Kind::kReplay:
      return "replay";
    case Kind::kIndex:
      return "index";
  }
  return "";
}

std::string Case::Title() const {
  if (kind == Kind::kIndex) return "index";
  if (kind == Kind::kLookup) {
    return absl::StrCat("lookup, ", ctl::Plural(batch, "key"), " a call",
                        lease ? "" : ", no lease");
  }
  std::string title = absl::StrCat(KindName(kind), ", chunks of ", ctl::Bytes(chunk_bytes));
  if (spans > 1) absl::StrAppend(&title, " in ", ctl::Count(spans), " spans");
  if (kind == Kind::kReplay) return title;
  absl::StrAppend(&title, ", ", ctl::Count(batch), " a call");
  if (kind == Kind::kMixed) absl::StrAppend(&title, ", ", ctl::Percent(gets), " gets");
  return title;
}

absl::StatusOr<Case> ParseCase(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  if (!(words >> word)) return absl::InvalidArgumentError("an operation is missing");
  CISTERN_ASSIGN_OR_RETURN(const Kind kind, KindOf(word));
  Case one = DefaultsOf(kind);
  while (words >> word) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    bool good = true;
    if (key == "chunk") {
      const absl::StatusOr<uint64_t> bytes = ParseSize(value);
      good = bytes.ok();
      if (good) one.chunk_bytes = *bytes;
    } else if (key == "batch") {
      good = absl::SimpleAtoi(value, &one.batch);
    } else if (key == "spans") {
      good = absl::SimpleAtoi(value, &one.spans);
    } else if (key == "gets") {
      good = absl::SimpleAtod(value, &one.gets);
    } else if (word == "no-lease") {
      one.lease = false;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("'", word, "' is none of chunk=, batch=, spans=, gets= and no-lease"));
    }
    if (!good) return absl::InvalidArgumentError(absl::StrCat("'", word, "' has no good value"));
  }
  return one;
}

ParsedOptions ParseOptions(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Options& options = parsed.options;
  std::string operation;
  std::vector<std::string> texts;
  CaseFlags flags;
  CLI::App app("Measures a Cistern pool.", "poolbench");
  app.footer(kFooter);
  // Scripts put what differs behind what they always give.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  std::vector<std::string> names;
  for (const Kind kind : kKinds) names.push_back(KindName(kind));
  app.add_option("operation", operation, "see below; default: the usual ones")
      ->check(CLI::IsMember(names));
  app.add_option("--case", texts, "an operation with its sizes; may be repeated")
      ->type_name("TEXT")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  AddRunOptions(app, options);
  AddCaseOptions(app, flags);
  AddScenarioOptions(app, options);
  try {
    app.parse(argc, argv);
    // Found now, not when what took minutes is to be written.
    const absl::Status writable =
        options.json.empty() ? absl::OkStatus() : CheckOutputPath(options.json);
    if (!writable.ok()) {
      throw CLI::ValidationError("--json", std::string(StdView(writable.message())));
    }
    options.cases = ChooseCases(operation, texts, flags);
    for (const Case& one : options.cases) {
      const absl::Status good = CheckCase(one, options);
      if (!good.ok()) throw CLI::ValidationError(std::string(StdView(good.message())));
    }
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = app.exit(error) == 0 ? 0 : 2;
  }
  return parsed;
}

}  // namespace cistern::poolbench
