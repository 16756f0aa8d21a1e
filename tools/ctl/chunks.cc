// cisternctl chunks ls|stat|rm: single chunks, by id or by the caller's key.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status.h"
#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/matching_chunks.h"
#include "tools/ctl/outcome.h"
#include "tools/ctl/render.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

constexpr uint32_t kPage = 10'000;

struct Flags {
  std::string ns;
  uint64_t limit = 1000;
  std::vector<std::string> ids;
  std::vector<std::string> keys;
  uint32_t shard = 0;
  uint32_t shard_count = 1;
  bool all = false;
  bool all_in_pool = false;
  bool force = false;
  std::string match;
  bool has_match = false;
  bool dry_run = false;
};

absl::Status List(const Context& context, const Flags& flags) {
  if (flags.has_match) {
    if (flags.ns.empty()) {
      return absl::InvalidArgumentError("--match needs --namespace: each keeps keys or does not");
    }
    return ListMatching(context, flags.ns, flags.match, flags.limit);
  }
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  admin::ListChunksReply all;
  admin::ListChunksRequest request;
  request.set_namespace_name(flags.ns);
  while (static_cast<uint64_t>(all.chunks_size()) < flags.limit) {
    const uint64_t left = flags.limit - static_cast<uint64_t>(all.chunks_size());
    request.set_limit(static_cast<uint32_t>(std::min<uint64_t>(left, kPage)));
    CISTERN_ASSIGN_OR_RETURN(const admin::ListChunksReply page, admin->ListChunks(request));
    all.mutable_chunks()->MergeFrom(page.chunks());
    all.set_next_page_token(page.next_page_token());
    request.set_page_token(page.next_page_token());
    if (page.next_page_token() == 0) break;
  }
  context.Print(all, RenderChunks(all));
  if (!context.json() && all.next_page_token() != 0) {
    context.out << "(more; --limit was " << flags.limit << ")\n";
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const Flags& flags) {
  for (const std::string& id : flags.ids) {
    if (!KeyId::ParseHex(id).ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", id, "' is no chunk id (32 hex digits); a caller's key goes to --key"));
    }
  }
  if (!flags.keys.empty() && flags.ns.empty()) {
    return absl::InvalidArgumentError("--key needs --namespace: keys are hashed with it");
  }
  return absl::OkStatus();
}

absl::Status Stat(const Context& context, const Flags& flags) {
  CISTERN_RETURN_IF_ERROR(CheckIds(flags));
  if (flags.ids.size() + flags.keys.size() != 1) {
    return absl::InvalidArgumentError("name one chunk, by its id or by --key");
  }
  admin::StatChunkRequest request;
  request.set_namespace_name(flags.ns);
  if (!flags.ids.empty()) request.set_id(flags.ids[0]);
  if (!flags.keys.empty()) request.set_key(flags.keys[0]);
  request.set_shard(flags.shard);
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::StatChunkReply reply, admin->StatChunk(request));
  context.Print(reply.chunk(), RenderChunk(reply.chunk()));
  return CheckServed(reply.chunk());
}

absl::Status Remove(const Context& context, const Flags& flags) {
  CISTERN_RETURN_IF_ERROR(CheckIds(flags));
  const bool named = !flags.ids.empty() || !flags.keys.empty();
  if (flags.has_match || flags.dry_run) {
    if (!flags.has_match || flags.ns.empty() || named || flags.all || flags.all_in_pool) {
      return absl::InvalidArgumentError(
          "--match (and --dry-run with it) needs --namespace, and no other way to name chunks");
    }
    return RemoveMatching(context, flags.ns, flags.match, flags.force, flags.dry_run);
  }
  if ((named ? 1 : 0) + (flags.all ? 1 : 0) + (flags.all_in_pool ? 1 : 0) != 1) {
    return absl::InvalidArgumentError(
        "name chunks by ids or --key, or all of them: --all with --namespace, or --all-in-pool");
  }
  if (flags.all && flags.ns.empty()) {
    return absl::InvalidArgumentError("--all needs --namespace (or say --all-in-pool)");
  }
  admin::RemoveChunksRequest request;
  request.set_namespace_name(flags.ns);
  for (const std::string& id : flags.ids) request.add_ids(id);
  for (const std::string& key : flags.keys) request.add_keys(key);
  request.set_force(flags.force);
  request.set_all_in_namespace(flags.all);
  request.set_all_in_pool(flags.all_in_pool);
  request.set_shard_first(flags.shard);
  request.set_shard_count(flags.shard_count);
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::RemoveChunksReply reply, admin->RemoveChunks(request));
  std::string text = absl::StrCat("removed ", Plural(reply.removed(), "chunk"), "\n");
  if (reply.not_found() > 0) absl::StrAppend(&text, Count(reply.not_found()), " not found\n");
  if (reply.refused() > 0) {
    absl::StrAppend(&text, Count(reply.refused()), " leased or pinned: --force removes them too\n");
  }
  if (reply.pending() > 0) {
    absl::StrAppend(&text, Count(reply.pending()),
                    " not reported gone by their stores: still there where a store is away\n");
  }
  if (reply.unreachable() > 0) {
    absl::StrAppend(&text, Count(reply.unreachable()),
                    " in stores that are away: still there; repeat when they are back\n");
  }
  context.Print(reply, text);
  if (reply.unreachable() > 0 || reply.pending() > 0) {
    return absl::UnavailableError("some chunks may be there still");
  }
  if (named && reply.not_found() > 0) return absl::NotFoundError("some chunks are not there");
  if (reply.refused() > 0) return absl::FailedPreconditionError("some chunks were not removed");
  return absl::OkStatus();
}

void AddNames(const Command& sub, const std::shared_ptr<Flags>& flags) {
  sub.AddOption("ids", flags->ids, "chunk ids, 32 hex digits each");
  sub.AddOption("-k,--key", flags->keys, "a caller's key, hashed with --namespace");
  sub.AddOption("--shard", flags->shard, "the (first) shard").Range(0, 4095);
}

}  // namespace

void AddChunks(const Command& app, Context& context) {
  const Command sub = app.AddCommand("chunks", "List, look at or remove single chunks");
  sub.RequireCommands(1, 1);
  auto flags = std::make_shared<Flags>();

  const Command ls = sub.AddCommand("ls", "Chunks in the order of the index");
  ls.AddOption("-n,--namespace", flags->ns, "only of this namespace");
  ls.AddOption("--limit", flags->limit, "at most so many").Range(1, 10'000'000).ShowDefault();
  const Option ls_match =
      ls.AddOption("--match", flags->match,
                   "only those whose kept key matches this RE2 pattern, with --namespace");
  ls.OnUse([&context, flags, ls_match] {
    flags->has_match = ls_match.given();
    context.Run([&] { return List(context, *flags); });
  });

  const Command stat = sub.AddCommand("stat", "Where one chunk is and what holds it there");
  stat.AddOption("-n,--namespace", flags->ns, "the namespace of --key");
  AddNames(stat, flags);
  stat.OnUse([&context, flags] { context.Run([&] { return Stat(context, *flags); }); });

  const Command rm = sub.AddCommand("rm", "Remove chunks; returns when their stores freed them");
  rm.AddOption("-n,--namespace", flags->ns, "the namespace of --key and --all");
  AddNames(rm, flags);
  rm.AddOption("--shard-count", flags->shard_count, "so many shards of each key").Range(1, 4096);
  rm.AddFlag("--all", flags->all, "every chunk of the namespace");
  rm.AddFlag("--all-in-pool", flags->all_in_pool, "every chunk of every namespace");
  rm.AddFlag("--force", flags->force, "leased and pinned ones too");
  const Option rm_match = rm.AddOption(
      "--match", flags->match, "those whose kept key matches this RE2 pattern, with --namespace");
  rm.AddFlag("--dry-run", flags->dry_run, "with --match: only say how many there are");
  rm.OnUse([&context, flags, rm_match] {
    flags->has_match = rm_match.given();
    context.Run([&] { return Remove(context, *flags); });
  });
}

}  // namespace cistern::ctl
