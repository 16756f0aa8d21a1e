// cisternctl put: a file becomes a chunk.
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

struct Flags {
  std::string ns = kOwnNamespace;
  std::string fingerprint;
  std::string key;
  std::string file;
  uint16_t shard = 0;
  bool replace = false;
  NamespaceOptions options;  // of a namespace that is new
};

absl::StatusOr<uint64_t> SizeOf(std::ifstream& in, const std::string& path) {
  in.open(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : -1;
  if (size < 0) return absl::InvalidArgumentError(absl::StrCat("cannot read ", path));
  const auto bytes = static_cast<uint64_t>(size);
  if (bytes < kMinChunkBytes || bytes > kMaxChunkBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", bytes, " bytes; a chunk has ",
                                                   kMinChunkBytes, " to ", kMaxChunkBytes));
  }
  in.seekg(0);
  return bytes;
}

absl::Status Put(const Context& context, const Flags& flags) {
  std::ifstream in;
  CISTERN_ASSIGN_OR_RETURN(const uint64_t bytes, SizeOf(in, flags.file));
  CISTERN_ASSIGN_OR_RETURN(auto client, context.Data());
  CISTERN_ASSIGN_OR_RETURN(
      auto ns, OpenOne(context, *client, flags.ns, flags.fingerprint, true, flags.options));
  CISTERN_ASSIGN_OR_RETURN(const KeyId id, ns->Hash(flags.key));
  CISTERN_ASSIGN_OR_RETURN(const Buffer buffer, client->AllocateBuffer(bytes));
  in.read(static_cast<char*>(buffer.data()), static_cast<std::streamsize>(bytes));
  if (static_cast<uint64_t>(in.gcount()) != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", flags.file, " to its end"));
  }
  const Span span{buffer.data(), bytes};
  PutItem item;
  item.id = id;
  item.shard = flags.shard;
  item.key = flags.key;
  item.memory.spans = absl::MakeConstSpan(&span, 1);
  PutOptions options;
  options.wait_visible = true;
  options.replace = flags.replace;
  const BatchResult result = ns->BatchPut(absl::MakeConstSpan(&item, 1), options);
  CISTERN_RETURN_IF_ERROR(result.status);
  const ChunkCode code = result.items[0].code;
  if (code != ChunkCode::kOk && code != ChunkCode::kPresent) {
    return OutcomeOf("put", code, result.message);
  }
  if (context.json()) {
    nlohmann::ordered_json out;
    out["id"] = id.ToHex();
    out["outcome"] = code == ChunkCode::kOk ? "put" : "present";
    if (code == ChunkCode::kOk) out["bytes"] = bytes;
    context.out << out.dump(2) << "\n";
  } else {
    // What is there was not compared: it may have other bytes, and another length.
    context.out << (code == ChunkCode::kOk
                        ? absl::StrCat("put: ", id.ToHex(), ", ", Bytes(bytes))
                        : absl::StrCat("present already, nothing was put: ", id.ToHex()))
                << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddPut(const Command& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  const Command sub = app.AddCommand("put", "Put a file of 4 KiB to 1 GiB as one chunk");
  sub.AddOption("key", flags->key, "the chunk's key").Required();
  sub.AddOption("file", flags->file, "the file to put").Required();
  sub.AddOption("-n,--namespace", flags->ns, "created when new").ShowDefault();
  sub.AddOption("--fingerprint", flags->fingerprint,
                "the namespace's; default: the one it has, or 'cisternctl' when new");
  sub.AddFlag("--replace", flags->replace, "also what is there (mutable namespaces)");
  sub.AddFlag("--mutable", flags->options.mutable_chunks,
              "a new namespace's chunks may be replaced");
  sub.AddFlag("--keep-keys", flags->options.keep_keys,
              "a new namespace keeps keys: see chunks ls --match");
  sub.AddOption("--shard", flags->shard, "beside the key").Range(0, 4095);
  sub.OnUse([&context, flags] { context.Run([&] { return Put(context, *flags); }); });
}

}  // namespace cistern::ctl
