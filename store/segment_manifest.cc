#include "store/segment_manifest.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/durable_file.h"
#include "base/status.h"
#include "base/string_view.h"

namespace cistern::store {
namespace {

using State = SegmentManifest::State;

constexpr char kFirstLine[] = "cistern-segments 1";
constexpr size_t kMaxFileBytes = size_t{1} << 20;

struct StateName {
  State state;
  const char* name;
};
constexpr StateName kStateNames[] = {
    {State::kMounting, "mounting"},
    {State::kMounted, "mounted"},
    {State::kUnmounting, "unmounting"},
    {State::kUnmounted, "unmounted"},
};

const char* NameOf(State state) {
  return std::find_if(std::begin(kStateNames), std::end(kStateNames),
                      [&](const StateName& s) { return s.state == state; })
      ->name;
}

// STATE KIND BYTES HUGE_PAGES NAME; the name comes last because it may hold blanks.
absl::StatusOr<SegmentManifest::Entry> ParseLine(absl::string_view line) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::MaxSplits(' ', 4), absl::SkipEmpty());
  SegmentManifest::Entry entry;
  if (words.size() != 5) return absl::InvalidArgumentError("five words are expected");
  const auto state = std::find_if(std::begin(kStateNames), std::end(kStateNames),
                                  [&](const StateName& s) { return words[0] == s.name; });
  if (state == std::end(kStateNames)) {
    return absl::InvalidArgumentError(absl::StrCat("'", words[0], "' is no state"));
  }
  entry.state = state->state;
  if (words[1] != "file" && words[1] != "memfd") {
    return absl::InvalidArgumentError(absl::StrCat("'", words[1], "' is neither file nor memfd"));
  }
  entry.spec.kind = words[1] == "memfd" ? SegmentKind::kMemfd : SegmentKind::kFile;
  if (!absl::SimpleAtoi(words[2], &entry.spec.bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("'", words[2], "' is no number of bytes"));
  }
  CISTERN_ASSIGN_OR_RETURN(entry.spec.huge_pages, ParseHugePages(std::string(words[3])));
  entry.spec.name = std::string(words[4]);
  CISTERN_RETURN_IF_ERROR(CheckSegmentName(entry.spec.name));
  return entry;
}

void AddRemark(SegmentPlan* plan, const SegmentSpec& spec, const char* what) {
  plan->remarks.push_back(absl::StrCat("segment ", spec.name, " ", what));
}

// A segment of the configuration, and what was done to it at run time.
void PlanConfigured(const SegmentSpec& spec, const SegmentManifest::Entry* entry,
                    SegmentPlan* plan) {
  if (entry == nullptr) {
    plan->open.push_back(spec);
    return;
  }
  switch (entry->state) {
    case State::kMounted:
      // It was unmounted, then mounted again by hand, perhaps with another size.
      if (entry->spec.bytes == spec.bytes && entry->spec.kind == spec.kind) {
        plan->after.Erase(spec.name);
        plan->open.push_back(spec);
        return;
      }
      AddRemark(plan, spec,
                "was mounted by hand: its size and kind are those, not the "
                "configuration's");
      plan->open.push_back(entry->spec);
      return;
    case State::kUnmounted:
      AddRemark(plan, spec,
                "of the configuration stays unmounted, as was asked (cisternctl "
                "segments mount brings it back)");
      return;
    case State::kMounting:
      plan->discard.push_back(entry->spec);
      plan->after.Erase(spec.name);
      plan->open.push_back(spec);
      return;
    case State::kUnmounting:
      plan->discard.push_back(entry->spec);
      plan->after.Set(State::kUnmounted, spec);
      AddRemark(plan, spec, "of the configuration: its unmount is ended now");
      return;
  }
}

void PlanByHand(const SegmentManifest::Entry& entry, SegmentPlan* plan) {
  switch (entry.state) {
    case State::kMounted:
      plan->open.push_back(entry.spec);
      return;
    case State::kMounting:
    case State::kUnmounting:
      plan->discard.push_back(entry.spec);
      AddRemark(plan, entry.spec,
                entry.state == State::kMounting ? "was not mounted to its end: it is removed"
                                                : "was being unmounted: that is ended now");
      [[fallthrough]];
    case State::kUnmounted:  // the configuration no longer names it
      plan->after.Erase(entry.spec.name);
      return;
  }
}

}  // namespace

absl::Status CheckSegmentName(std::string_view name) {
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F && c != '/';
  });
  if (name.empty() || name.size() > kMaxSegmentNameBytes || !printable || name.front() == '.' ||
      name.front() == ' ' || name.back() == ' ') {
    return absl::InvalidArgumentError(
        absl::StrCat("segment name '", AbslView(name), "' must be a plain file name of 1 to ",
                     kMaxSegmentNameBytes, " printable characters, without a dot in front"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SegmentSpec>> ConfiguredSegments(const config::StoreConfig& config) {
  std::vector<SegmentSpec> specs;
  for (int i = 0; i < config.segment_size(); ++i) {
    const config::SegmentConfig& entry = config.segment(i);
    SegmentSpec spec;
    spec.name = entry.name().empty() ? absl::StrCat("dram-", i) : entry.name();
    spec.kind = entry.kind() == "memfd" ? SegmentKind::kMemfd : SegmentKind::kFile;
    spec.bytes = entry.size_bytes();
    const bool own = !entry.huge_pages().empty() && entry.huge_pages() != "inherit";
    const std::string& of_store = config.huge_pages().empty() ? "never" : config.huge_pages();
    CISTERN_ASSIGN_OR_RETURN(spec.huge_pages, ParseHugePages(own ? entry.huge_pages() : of_store));
    CISTERN_RETURN_IF_ERROR(CheckSegmentName(spec.name));
    for (const SegmentSpec& other : specs) {
      if (other.name == spec.name) {
        return absl::InvalidArgumentError(absl::StrCat(
            "two segments are called '", spec.name, "'; give each [[segment]] a name of its own"));
      }
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

absl::StatusOr<SegmentManifest> SegmentManifest::Load(const std::string& data_dir) {
  const std::string path = absl::StrCat(data_dir, "/", kFileName);
  struct stat st;
  if (stat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return SegmentManifest();
    return ErrnoStatus(errno, path);
  }
  if (static_cast<uint64_t>(st.st_size) > kMaxFileBytes) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is too long to be a segments file"));
  }
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  absl::StatusOr<SegmentManifest> manifest = Parse(text.str());
  if (!manifest.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ", manifest.status().message(),
                     "; correct it, or remove it to have the configuration's segments only"));
  }
  return manifest;
}

absl::StatusOr<SegmentManifest> SegmentManifest::Parse(std::string_view text) {
  SegmentManifest manifest;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(AbslView(text), '\n')) {
    if (++number == 1) {
      if (line == kFirstLine) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the first line must be '", kFirstLine, "' (a newer format?)"));
    }
    if (line.empty() || line[0] == '#') continue;
    const absl::StatusOr<Entry> entry = ParseLine(line);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", entry.status().message()));
    }
    if (manifest.Find(entry->spec.name) != nullptr || manifest.entries_.size() >= kMaxEntries) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": segment '",
                                                     entry->spec.name,
                                                     "' is there twice, or they are too many"));
    }
    manifest.entries_.push_back(*entry);
  }
  return manifest;
}

std::string SegmentManifest::ToText() const {
  std::string text =
      absl::StrCat(kFirstLine, "\n# Written by cistern-store. STATE KIND BYTES HUGE_PAGES NAME\n");
  for (const Entry& entry : entries_) {
    absl::StrAppend(&text, NameOf(entry.state), " ",
                    entry.spec.kind == SegmentKind::kMemfd ? "memfd" : "file", " ",
                    entry.spec.bytes, " ", HugePagesName(entry.spec.huge_pages), " ",
                    entry.spec.name, "\n");
  }
  return text;
}

absl::Status SegmentManifest::Save(const std::string& data_dir) const {
  struct stat st;
  const std::string path = absl::StrCat(data_dir, "/", kFileName);
  if (entries_.empty() && stat(path.c_str(), &st) != 0 && errno == ENOENT) return absl::OkStatus();
  return WriteFileDurably(data_dir, kFileName, ToText());
}

const SegmentManifest::Entry* SegmentManifest::Find(std::string_view name) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.spec.name == name; });
  return it == entries_.end() ? nullptr : &*it;
}

void SegmentManifest::Set(State state, const SegmentSpec& spec) {
  for (Entry& entry : entries_) {
    if (entry.spec.name == spec.name) {
      entry = {state, spec};
      return;
    }
  }
  entries_.push_back({state, spec});
}

void SegmentManifest::Erase(std::string_view name) {
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(),
                                [&](const Entry& entry) { return entry.spec.name == name; }),
                 entries_.end());
}

absl::StatusOr<SegmentPlan> PlanSegments(const std::vector<SegmentSpec>& configured,
                                         const SegmentManifest& manifest) {
  SegmentPlan plan;
  plan.after = manifest;
  for (const SegmentSpec& spec : configured) PlanConfigured(spec, manifest.Find(spec.name), &plan);
  for (const SegmentManifest::Entry& entry : manifest.entries()) {
    const bool named =
        std::any_of(configured.begin(), configured.end(),
                    [&](const SegmentSpec& spec) { return spec.name == entry.spec.name; });
    if (!named) PlanByHand(entry, &plan);
  }
  if (plan.open.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "every segment of the configuration was unmounted by hand; add a [[segment]], or remove "
        "the lines of those that shall come back from the file '",
        SegmentManifest::kFileName, "' in data_dir"));
  }
  return plan;
}

}  // namespace cistern::store
