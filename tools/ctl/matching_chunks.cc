#include "tools/ctl/matching_chunks.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/client.h"
#include "tools/ctl/one_namespace.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

constexpr size_t kPageKeys = 4'096;

// Keys are bytes; what is no text is shown as \xNN in JSON too.
nlohmann::ordered_json ToJson(const ListedKey& key) {
  nlohmann::ordered_json out;
  out["key"] = Printable(key.key);
  out["id"] = key.id.ToHex();
  out["shard"] = key.shard;
  out["length"] = key.length;
  return out;
}

absl::Status Unreachable(const std::vector<StoreId>& stores) {
  if (stores.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(Plural(stores.size(), "store"), " did not answer: chunks there are left out"));
}

}  // namespace

absl::Status ListMatching(const Context& context, const std::string& ns, const std::string& pattern,
                          uint64_t limit) {
  CISTERN_ASSIGN_OR_RETURN(auto client, context.Data());
  CISTERN_ASSIGN_OR_RETURN(auto opened, OpenOne(context, *client, ns, "", /*create=*/false));
  std::vector<ListedKey> keys;
  std::vector<StoreId> unreachable;
  ListOptions options;
  do {
    options.max_keys = std::min<uint64_t>(kPageKeys, limit - keys.size());
    CISTERN_ASSIGN_OR_RETURN(KeyPage page, opened->ListKeys(pattern, options));
    std::move(page.keys.begin(), page.keys.end(), std::back_inserter(keys));
    unreachable.insert(unreachable.end(), page.unreachable.begin(), page.unreachable.end());
    options.cursor = page.next;
  } while (!options.cursor.empty() && keys.size() < limit);
  const bool more = !options.cursor.empty() || keys.size() > limit;
  if (keys.size() > limit) keys.resize(limit);
  std::sort(keys.begin(), keys.end(), [](const ListedKey& a, const ListedKey& b) {
    return std::tie(a.key, a.shard) < std::tie(b.key, b.shard);
  });
  if (context.json()) {
    nlohmann::ordered_json out;
    out["chunks"] = nlohmann::ordered_json::array();
    for (const ListedKey& key : keys) out["chunks"].push_back(ToJson(key));
    out["more"] = more;
    context.out << out.dump(2) << "\n";
  } else {
    Table table(
        {{"key"}, {"shard", Table::Align::kRight}, {"length", Table::Align::kRight}, {"id"}});
    for (const ListedKey& key : keys) {
      table.AddRow(
          {Printable(key.key), absl::StrCat(key.shard), Bytes(key.length), key.id.ToHex()});
    }
    context.out << (keys.empty() ? "no chunk's key matches\n" : table.ToString("  "));
    if (more) context.out << "(more; --limit was " << limit << ")\n";
  }
  return Unreachable(unreachable);
}

absl::Status RemoveMatching(const Context& context, const std::string& ns,
                            const std::string& pattern, bool force, bool dry_run) {
  CISTERN_ASSIGN_OR_RETURN(auto client, context.Data());
  CISTERN_ASSIGN_OR_RETURN(auto opened, OpenOne(context, *client, ns, "", /*create=*/false));
  MatchRemoval sum;
  if (dry_run) {
    ListOptions options;
    options.max_keys = kPageKeys;
    do {
      CISTERN_ASSIGN_OR_RETURN(const KeyPage page, opened->ListKeys(pattern, options));
      sum.matched += page.keys.size();
      sum.unreachable.insert(sum.unreachable.end(), page.unreachable.begin(),
                             page.unreachable.end());
      options.cursor = page.next;
    } while (!options.cursor.empty());
  } else {
    RemoveOptions options;
    options.force = force;
    CISTERN_ASSIGN_OR_RETURN(sum, opened->RemoveMatching(pattern, options));
  }
  if (context.json()) {
    nlohmann::ordered_json out;
    out["matched"] = sum.matched;
    out["removed"] = sum.removed;
    out["refused"] = sum.refused;
    out["failed"] = sum.failed;
    context.out << out.dump(2) << "\n";
  } else if (dry_run) {
    context.out << "would remove " << Plural(sum.matched, "chunk") << "\n";
  } else {
    context.out << "removed " << Plural(sum.removed, "chunk") << "\n";
    if (sum.refused > 0) {
      context.out << Count(sum.refused) << " leased or pinned: --force removes them too\n";
    }
    if (sum.failed > 0) context.out << Count(sum.failed) << " not reported by their stores\n";
  }
  CISTERN_RETURN_IF_ERROR(Unreachable(sum.unreachable));
  if (sum.failed > 0) return absl::UnavailableError("some chunks may be there still");
  if (sum.refused > 0) return absl::FailedPreconditionError("some chunks were not removed");
  return absl::OkStatus();
}

}  // namespace cistern::ctl
