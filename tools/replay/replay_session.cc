#include "tools/replay/replay_session.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/string_view.h"
#include "tools/replay/chunk_pattern.h"

namespace cistern::replay {
namespace {

using Json = nlohmann::json;

// The counters by name, in one place for merging and for both directions of the JSON.
struct CounterName {
  const char* name;
  uint64_t ReplayCounts::*field;
};
constexpr CounterName kCounters[] = {
    {"requests", &ReplayCounts::requests},
    {"chunks_looked_up", &ReplayCounts::chunks_looked_up},
    {"chunk_hits", &ReplayCounts::chunk_hits},
    {"prefix_hits", &ReplayCounts::prefix_hits},
    {"prefix_hit_tokens", &ReplayCounts::prefix_hit_tokens},
    {"prompt_tokens", &ReplayCounts::prompt_tokens},
    {"bytes_put", &ReplayCounts::bytes_put},
    {"bytes_got", &ReplayCounts::bytes_got},
    {"puts_present", &ReplayCounts::puts_present},
    {"puts_in_progress", &ReplayCounts::puts_in_progress},
    {"get_misses", &ReplayCounts::get_misses},
    {"verification_failures", &ReplayCounts::verification_failures},
    {"errors", &ReplayCounts::errors},
};
struct HistogramName {
  const char* name;
  LatencyHistogram ReplayCounts::*field;
};
constexpr HistogramName kHistograms[] = {
    {"lookup", &ReplayCounts::lookup},
    {"put", &ReplayCounts::put},
    {"get", &ReplayCounts::get},
};

std::string KeyOf(uint64_t block) { return absl::StrCat("block-", block); }

}  // namespace

void ReplayCounts::Merge(const ReplayCounts& other) {
  for (const CounterName& counter : kCounters) this->*counter.field += other.*counter.field;
  for (const HistogramName& h : kHistograms) (this->*h.field).Merge(other.*h.field);
  if (first_error.empty()) first_error = other.first_error;
}

std::string ReplayCounts::ToJson() const {
  Json out;
  for (const CounterName& counter : kCounters) out[counter.name] = this->*counter.field;
  for (const HistogramName& h : kHistograms) out[h.name] = (this->*h.field).Serialize();
  out["first_error"] = first_error;
  return out.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

absl::StatusOr<ReplayCounts> ReplayCounts::FromJson(const std::string& text) {
  const Json in = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!in.is_object()) return absl::InvalidArgumentError("not a JSON object");
  ReplayCounts counts;
  for (const CounterName& counter : kCounters) {
    const auto it = in.find(counter.name);
    if (it == in.end() || !it->is_number_unsigned()) {
      return absl::InvalidArgumentError(absl::StrCat(counter.name, " is missing"));
    }
    counts.*counter.field = it->get<uint64_t>();
  }
  for (const HistogramName& h : kHistograms) {
    const auto it = in.find(h.name);
    if (it == in.end() || !it->is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(h.name, " is missing"));
    }
    auto histogram = LatencyHistogram::Parse(it->get_ref<const std::string&>());
    if (!histogram.ok()) return histogram.status();
    counts.*h.field = *std::move(histogram);
  }
  const auto error = in.find("first_error");
  if (error != in.end() && error->is_string()) counts.first_error = error->get<std::string>();
  return counts;
}

ReplaySession::ReplaySession(Namespace& ns, const Buffer& memory, Clock& clock,
                             const Options& options)
    : ReplaySession(
          ns,
          absl::MakeSpan(static_cast<uint8_t*>(memory.data()), static_cast<size_t>(memory.bytes())),
          clock, options) {}

ReplaySession::ReplaySession(Namespace& ns, absl::Span<uint8_t> memory, Clock& clock,
                             const Options& options)
    : ns_(ns),
      memory_(memory),
      clock_(clock),
      options_(options),
      slots_(memory.size() / options.chunk_bytes) {
  spans_.resize(slots_);
  for (size_t i = 0; i < slots_; ++i) spans_[i] = {Slot(i), options_.chunk_bytes};
}

void ReplaySession::CountError(const std::string& what) {
  ++counts_.errors;
  if (counts_.first_error.empty()) counts_.first_error = what;
}

void ReplaySession::Replay(const Request& request) {
  const size_t count = request.blocks.size();
  ++counts_.requests;
  counts_.chunks_looked_up += count;
  counts_.prompt_tokens += request.input_tokens;
  ids_.clear();
  for (uint64_t block : request.blocks) {
    const absl::StatusOr<KeyId> id = ns_.Hash(KeyOf(block));
    ids_.push_back(id.ok() ? *id : KeyId{});
  }

  const MonoTime start = clock_.Mono();
  const absl::StatusOr<LookupResult> found = ns_.Lookup(ids_);
  counts_.lookup.Record(clock_.Mono() - start);
  size_t run = 0;
  if (found.ok()) {
    counts_.chunk_hits +=
        static_cast<uint64_t>(std::count(found->present.begin(), found->present.end(), true));
    run = std::min<size_t>(found->leading_run, count);
  } else {
    CountError(absl::StrCat("lookup: ", found.status().ToString()));
  }

  const size_t got = GetRun(request, run);
  counts_.prefix_hits += got;
  counts_.prefix_hit_tokens += request.TokensOfFirst(got);
  if (found.ok() && !found->leases.empty()) {
    const absl::Status released = ns_.Release(found->leases);
    if (!released.ok() && !absl::IsNotFound(released)) {
      CountError(absl::StrCat("release: ", released.ToString()));
    }
  }
  PutFrom(request, got);
}

size_t ReplaySession::GetRun(const Request& request, size_t run) {
  size_t right = 0;
  bool unbroken = true;
  for (size_t first = 0; first < run; first += slots_) {
    const size_t count = std::min(slots_, run - first);
    // What an earlier request left there would be right for a chunk that never arrives.
    std::memset(memory_.data(), 0xA5, count * options_.chunk_bytes);
    std::vector<GetItem> items(count);
    for (size_t i = 0; i < count; ++i) {
      items[i].id = ids_[first + i];
      items[i].memory.spans = absl::MakeConstSpan(&spans_[i], 1);
    }
    const MonoTime start = clock_.Mono();
    const BatchResult result = ns_.BatchGet(items);
    counts_.get.Record(clock_.Mono() - start);
    if (!result.status.ok()) CountError(absl::StrCat("get: ", result.status.ToString()));
    for (size_t i = 0; i < count; ++i) {
      const ChunkCode code = i < result.items.size() ? result.items[i].code : ChunkCode::kInternal;
      bool good = code == ChunkCode::kOk;
      if (good) {
        counts_.bytes_got += options_.chunk_bytes;
        const uint64_t block = request.blocks[first + i];
        const size_t at = ChunkPattern(options_.seed, block).Verify(Slot(i), options_.chunk_bytes);
        if (at != options_.chunk_bytes) {
          good = false;
          ++counts_.verification_failures;
          CountError(
              absl::StrFormat("block %u: byte %u of %u is wrong", block, at, options_.chunk_bytes));
        }
      } else if (code == ChunkCode::kNotFound) {
        ++counts_.get_misses;
      } else {
        counts_.verification_failures += code == ChunkCode::kDataLoss;
        CountError(absl::StrCat("get: ", AbslView(ChunkCodeName(code)), ": ", result.message));
      }
      unbroken = unbroken && good;
      right += unbroken;
    }
  }
  return right;
}

void ReplaySession::PutFrom(const Request& request, size_t from) {
  const size_t end = request.blocks.size();
  for (size_t first = from; first < end; first += slots_) {
    const size_t count = std::min(slots_, end - first);
    std::vector<PutItem> items(count);
    for (size_t i = 0; i < count; ++i) {
      ChunkPattern(options_.seed, request.blocks[first + i]).Fill(Slot(i), options_.chunk_bytes);
      items[i].id = ids_[first + i];
      items[i].memory.spans = absl::MakeConstSpan(&spans_[i], 1);
    }
    PutOptions options;
    // Chunks of one chain belong together, wherever in it this call starts.
    options.affinity = ids_[0].word(0);
    const MonoTime start = clock_.Mono();
    const BatchResult result = ns_.BatchPut(items, options);
    counts_.put.Record(clock_.Mono() - start);
    if (!result.status.ok()) CountError(absl::StrCat("put: ", result.status.ToString()));
    for (size_t i = 0; i < count; ++i) {
      const ChunkCode code = i < result.items.size() ? result.items[i].code : ChunkCode::kInternal;
      switch (code) {
        case ChunkCode::kOk:
          counts_.bytes_put += options_.chunk_bytes;
          break;
        case ChunkCode::kPresent:
          ++counts_.puts_present;
          break;
        case ChunkCode::kInProgress:
          ++counts_.puts_in_progress;
          break;
        case ChunkCode::kNotFound:
          break;
        default:
          CountError(absl::StrCat("put: ", AbslView(ChunkCodeName(code)), ": ", result.message));
      }
    }
  }
}

}  // namespace cistern::replay
