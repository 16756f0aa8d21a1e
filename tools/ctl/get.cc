// cisternctl get: a chunk becomes a file.
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/client.h"
#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/one_namespace.h"
#include "tools/ctl/outcome.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

constexpr uint64_t kFirstGuessBytes = 4 << 20;

struct Flags {
  std::string ns = kOwnNamespace;
  std::string fingerprint;
  std::string key;
  std::string file;
  uint16_t shard = 0;
};

struct Got {
  Buffer buffer;
  ChunkResult result;
  std::string message;
};

absl::StatusOr<Got> GetInto(Client& client, Namespace& ns, const KeyId& id, uint16_t shard,
                            uint64_t room) {
  Got got;
  CISTERN_ASSIGN_OR_RETURN(got.buffer, client.AllocateBuffer(room));
  const Span span{got.buffer.data(), room};
  GetItem item;
  item.id = id;
  item.shard = shard;
  item.memory.spans = absl::MakeConstSpan(&span, 1);
  item.any_length = true;
  const BatchResult result = ns.BatchGet(absl::MakeConstSpan(&item, 1));
  CISTERN_RETURN_IF_ERROR(result.status);
  got.result = result.items[0];
  got.message = result.message;
  return got;
}

absl::Status Get(const Context& context, const Flags& flags) {
  CISTERN_ASSIGN_OR_RETURN(auto client, context.Data());
  CISTERN_ASSIGN_OR_RETURN(auto ns, OpenOne(context, *client, flags.ns, flags.fingerprint, false));
  CISTERN_ASSIGN_OR_RETURN(const KeyId id, ns->Hash(flags.key));
  CISTERN_ASSIGN_OR_RETURN(Got got, GetInto(*client, *ns, id, flags.shard, kFirstGuessBytes));
  // A chunk that is longer is refused, with its length.
  if (got.result.code == ChunkCode::kInvalidArgument && got.result.length > kFirstGuessBytes) {
    CISTERN_ASSIGN_OR_RETURN(got, GetInto(*client, *ns, id, flags.shard, got.result.length));
  }
  if (got.result.code == ChunkCode::kNotFound) {
    return ExplainMiss(context, flags.ns, id, flags.shard,
                       absl::StrCat("chunk '", Printable(flags.key), "' in ", Printable(flags.ns)));
  }
  if (got.result.code != ChunkCode::kOk) return OutcomeOf("get", got.result.code, got.message);
  if (flags.file == "-") {
    context.out.write(static_cast<const char*>(got.buffer.data()),
                      static_cast<std::streamsize>(got.result.length));
    context.out.flush();
    return absl::OkStatus();
  }
  std::ofstream file(flags.file, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(got.buffer.data()),
             static_cast<std::streamsize>(got.result.length));
  file.close();
  if (!file) return absl::InvalidArgumentError(absl::StrCat("cannot write ", flags.file));
  if (context.json()) {
    nlohmann::ordered_json out;
    out["id"] = id.ToHex();
    out["bytes"] = got.result.length;
    out["verified"] = got.result.verified;
    context.out << out.dump(2) << "\n";
  } else {
    context.out << "got " << id.ToHex() << ": " << Bytes(got.result.length)
                << (got.result.verified ? ", digests checked\n" : ", without digests\n");
  }
  return absl::OkStatus();
}

}  // namespace

void AddGet(const Command& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  const Command sub = app.AddCommand(
      "get", "Write a chunk to a file; exit code 1 when it is a miss, 3 when its store is away");
  sub.AddOption("key", flags->key, "the chunk's key").Required();
  sub.AddOption("file", flags->file, "where to write it; - is standard output").Required();
  sub.AddOption("-n,--namespace", flags->ns, "").ShowDefault();
  sub.AddOption("--fingerprint", flags->fingerprint, "the namespace's; default: the one it has");
  sub.AddOption("--shard", flags->shard, "beside the key").Range(0, 4095);
  sub.OnUse([&context, flags] { context.Run([&] { return Get(context, *flags); }); });
}

}  // namespace cistern::ctl
