#include "master/admin_service.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "master/admin_format.h"
#include "transport/frame.h"

namespace cistern::master {
namespace {

constexpr uint32_t kDefaultListed = 1'000;
constexpr uint32_t kMaxListed = 10'000;
// Slices that one ListChunks looks at: it answers with what it has, and the client asks on.
constexpr int kMaxListSlices = 128;

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

ChunkNames NamesOf(MasterCore& core, MonoTime now) {
  ChunkNames names;
  for (const StoreView& store : core.Stores(now)) names.stores[store.index.value] = store.name;
  for (const NamespaceView& ns : core.Namespaces()) {
    names.namespaces[ns.index.value] = ns.info.name();
  }
  return names;
}

// "" means all of them.
absl::StatusOr<NamespaceIndex> FindOrAll(MasterCore& core, const std::string& name) {
  if (name.empty()) return NamespaceIndex(NamespaceIndex::kNone);
  const NamespaceIndex found = core.FindNamespace("", name);
  if (found.none()) return absl::NotFoundError(absl::StrCat("no namespace is called '", name, "'"));
  return found;
}

}  // namespace

std::string AdminAuthorization(std::string_view token, const PoolId& pool_id) {
  const auto mac = HmacSha256(token, absl::StrCat("admin", AbslView(pool_id.view())));
  return absl::StrCat("Bearer ", absl::BytesToHexString(absl::string_view(
                                     reinterpret_cast<const char*>(mac.data()), mac.size())));
}

AdminService::AdminService(Options options, CoreDriver& driver, RocksStateStore& state,
                           SegmentCommands& segment_commands)
    : options_(std::move(options)),
      authorization_(options_.token.empty() ? ""
                                            : AdminAuthorization(options_.token, options_.pool_id)),
      driver_(driver),
      segment_commands_(segment_commands),
      removals_(driver, state) {}

absl::Status AdminService::Authorise(const Context& context) const {
  if (authorization_.empty()) return absl::OkStatus();
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find("authorization");
  if (it == metadata.end()) {
    return absl::UnauthenticatedError("this pool has a token: name its file with the call");
  }
  if (!ConstantTimeEqual({it->second.data(), it->second.size()}, authorization_)) {
    return absl::PermissionDeniedError("the token is not this pool's");
  }
  return absl::OkStatus();
}

MonoTime AdminService::Deadline(const Context& context) const {
  const MonoTime now = driver_.clock().Mono();
  // gRPC knows no deadline as one in the far future.
  const absl::Duration left = absl::FromChrono(context.deadline()) - driver_.clock().Wall();
  if (left > options_.max_deadline) return now + options_.default_deadline;
  return now + left * 0.9;  // the rest is for the answer's way back
}

template <typename Fn>
AdminService::Reactor* AdminService::Answer(Context* context, Fn&& fn) {
  Reactor* reactor = context->DefaultReactor();
  absl::Status status = Authorise(*context);
  if (status.ok()) status = std::forward<Fn>(fn)();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

AdminService::Reactor* AdminService::Stats(Context* context, const admin::StatsRequest*,
                                           admin::StatsReply* reply) {
  return Answer(context, [&] {
    PoolView pool;
    std::vector<StoreView> stores;
    std::vector<NamespaceView> namespaces;
    driver_.With([&](MasterCore& core, MonoTime now) {
      pool = core.Pool(now);
      stores = core.Stores(now);
      namespaces = core.Namespaces();
    });
    FormatPool(pool, stores, reply->mutable_pool());
    for (const StoreView& store : stores) FormatStore(store, reply->add_stores());
    for (const NamespaceView& ns : namespaces) FormatNamespace(ns, reply->add_namespaces());
    FormatHoldTimes(driver_.hold_times(), reply->mutable_pool());
    reply->mutable_pool()->set_pool_id(options_.pool_id.ToHex());
    reply->mutable_pool()->set_software_version(options_.software_version);
    reply->mutable_pool()->set_build_mode(options_.build_mode);
    if (options_.client_connections) {
      reply->mutable_pool()->set_client_connections(options_.client_connections());
    }
    return absl::OkStatus();
  });
}

AdminService::Reactor* AdminService::Segments(Context* context, const admin::SegmentsRequest*,
                                              admin::SegmentsReply* reply) {
  return Answer(context, [&] {
    const std::vector<StoreView> stores =
        driver_.With([](MasterCore& core, MonoTime now) { return core.Stores(now); });
    for (const StoreView& store : stores) {
      for (const wire::SegmentInfo& segment : store.segments) {
        FormatSegment(store.name, segment, reply->add_segments());
      }
    }
    return absl::OkStatus();
  });
}

AdminService::Reactor* AdminService::MountSegment(Context* context,
                                                  const admin::MountSegmentRequest* request,
                                                  admin::MountSegmentReply* reply) {
  Reactor* reactor = context->DefaultReactor();
  if (absl::Status status = Authorise(*context); !status.ok()) {
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  wire::SegmentCommand command;
  command.mutable_mount()->set_bytes(request->bytes());
  command.mutable_mount()->set_name(request->name());
  command.mutable_mount()->set_kind(request->kind());
  command.mutable_mount()->set_huge_pages(request->huge_pages());
  segment_commands_.Send(
      request->store(), std::move(command), Deadline(*context),
      [reactor, reply](absl::Status status, const SegmentCommands::Answer& answer) {
        FormatSegment(answer.store, answer.done.segment(), reply->mutable_segment());
        reactor->Finish(ToGrpc(status));
      });
  return reactor;
}

AdminService::Reactor* AdminService::UnmountSegment(Context* context,
                                                    const admin::UnmountSegmentRequest* request,
                                                    admin::UnmountSegmentReply* reply) {
  Reactor* reactor = context->DefaultReactor();
  if (absl::Status status = Authorise(*context); !status.ok()) {
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  wire::SegmentCommand command;
  command.mutable_unmount()->set_segment(request->segment());
  command.mutable_unmount()->set_cancel(request->cancel());
  segment_commands_.Send(
      request->store(), std::move(command), Deadline(*context),
      [reactor, reply](absl::Status status, const SegmentCommands::Answer& answer) {
        FormatSegment(answer.store, answer.done.segment(), reply->mutable_segment());
        reply->set_evicted_chunks(answer.done.evicted_chunks());
        reply->set_evicted_bytes(answer.done.evicted_bytes());
        // The store's word that it goes on is no error; without a word nothing is known.
        reply->set_pending(answer.done.code() ==
                           static_cast<uint32_t>(absl::StatusCode::kDeadlineExceeded));
        if (reply->pending()) status = absl::OkStatus();
        reactor->Finish(ToGrpc(status));
      });
  return reactor;
}

AdminService::Reactor* AdminService::ListChunks(Context* context,
                                                const admin::ListChunksRequest* request,
                                                admin::ListChunksReply* reply) {
  return Answer(context, [&] { return ListInto(*request, Deadline(*context), reply); });
}

absl::Status AdminService::ListInto(const admin::ListChunksRequest& request, MonoTime until,
                                    admin::ListChunksReply* reply) {
  if (request.limit() > kMaxListed) {
    return absl::InvalidArgumentError(absl::StrCat("at most ", kMaxListed, " chunks in one call"));
  }
  const size_t limit = request.limit() == 0 ? kDefaultListed : request.limit();
  CISTERN_ASSIGN_OR_RETURN(const NamespaceIndex ns, driver_.With([&](MasterCore& core, MonoTime) {
    return FindOrAll(core, request.namespace_name());
  }));
  std::vector<ChunkView> chunks;
  uint64_t page = request.page_token();
  for (int slice = 0; slice < kMaxListSlices && chunks.size() < limit; ++slice) {
    driver_.With([&](MasterCore& core, MonoTime now) {
      core.ListChunks(ns, &page, static_cast<uint32_t>(limit - chunks.size()), now, &chunks);
    });
    if (page == 0 || driver_.clock().Mono() > until) break;
  }
  const ChunkNames names = driver_.With(NamesOf);
  for (const ChunkView& chunk : chunks) FormatChunk(chunk, names, reply->add_chunks());
  reply->set_next_page_token(page);
  return absl::OkStatus();
}

AdminService::Reactor* AdminService::StatChunk(Context* context,
                                               const admin::StatChunkRequest* request,
                                               admin::StatChunkReply* reply) {
  return Answer(context, [&] { return StatInto(*request, reply); });
}

absl::Status AdminService::StatInto(const admin::StatChunkRequest& request,
                                    admin::StatChunkReply* reply) {
  if (request.id().empty() == request.key().empty()) {
    return absl::InvalidArgumentError("name the chunk by its id or by its key");
  }
  if (request.shard() > Shard::kMax) {
    return absl::InvalidArgumentError(absl::StrCat("a shard is at most ", Shard::kMax));
  }
  if (!request.key().empty() && request.namespace_name().empty()) {
    return absl::InvalidArgumentError("a key needs its namespace");
  }
  const Shard shard(static_cast<uint16_t>(request.shard()));
  const absl::StatusOr<ChunkView> chunk = driver_.With([&](MasterCore& core, MonoTime now)
                                                           -> absl::StatusOr<ChunkView> {
    CISTERN_ASSIGN_OR_RETURN(const NamespaceIndex ns, FindOrAll(core, request.namespace_name()));
    if (!request.id().empty()) {
      CISTERN_ASSIGN_OR_RETURN(const KeyId id, KeyId::ParseHex(request.id()));
      return core.StatChunk(ns, id, shard, now);
    }
    if (request.key().size() > kMaxKeyBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a key has at most ", kMaxKeyBytes, " bytes"));
    }
    for (const NamespaceView& view : core.Namespaces()) {
      if (view.index != ns) continue;
      const KeyHasher hasher(NamespaceId::FromBytes(view.info.id().data()));
      return core.StatChunk(ns, hasher.Hash(request.key()), shard, now);
    }
    return absl::NotFoundError("no such namespace");
  });
  if (!chunk.ok()) return chunk.status();
  FormatChunk(*chunk, driver_.With(NamesOf), reply->mutable_chunk());
  return absl::OkStatus();
}

AdminService::Reactor* AdminService::RemoveChunks(Context* context,
                                                  const admin::RemoveChunksRequest* request,
                                                  admin::RemoveChunksReply* reply) {
  Reactor* reactor = context->DefaultReactor();
  if (absl::Status status = Authorise(*context); !status.ok()) {
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  removals_.RemoveChunks(
      *request, Deadline(*context),
      [reactor, reply](absl::Status status, const admin::RemoveChunksReply& outcome) {
        *reply = outcome;
        reactor->Finish(ToGrpc(status));
      });
  return reactor;
}

AdminService::Reactor* AdminService::RemoveNamespace(Context* context,
                                                     const admin::RemoveNamespaceRequest* request,
                                                     admin::RemoveNamespaceReply* reply) {
  Reactor* reactor = context->DefaultReactor();
  if (absl::Status status = Authorise(*context); !status.ok()) {
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  removals_.RemoveNamespace(
      *request, Deadline(*context),
      [reactor, reply](absl::Status status, const admin::RemoveNamespaceReply& outcome) {
        *reply = outcome;
        reactor->Finish(ToGrpc(status));
      });
  return reactor;
}

AdminService::Reactor* AdminService::Evict(Context* context, const admin::EvictRequest* request,
                                           admin::EvictReply* reply) {
  Reactor* reactor = context->DefaultReactor();
  absl::Status status = Authorise(*context);
  const MonoTime deadline = Deadline(*context);
  const uint64_t before = EvictingBytes();
  if (status.ok()) status = EvictInto(*request, deadline, reply);
  if (status.ok() && reply->chunks() > 0) {
    const MonoTime until = std::min(deadline, driver_.clock().Mono() + options_.max_evict_wait);
    MutexLock lock(mutex_);
    if (!closed_) {
      evicts_.push_back({reactor, until, before});
      return reactor;
    }
  }
  reactor->Finish(ToGrpc(status));
  return reactor;
}

absl::Status AdminService::EvictInto(const admin::EvictRequest& request, MonoTime until,
                                     admin::EvictReply* reply) {
  CISTERN_ASSIGN_OR_RETURN(const NamespaceIndex ns, driver_.With([&](MasterCore& core, MonoTime) {
    return FindOrAll(core, request.namespace_name());
  }));
  const uint64_t wanted =
      request.bytes() == 0 ? std::numeric_limits<uint64_t>::max() : request.bytes();
  uint64_t page = 0;
  do {
    const MasterCore::Evicted evicted = driver_.With([&](MasterCore& core, MonoTime now) {
      return core.EvictSlice(ns, wanted - reply->bytes(), &page, now);
    });
    reply->set_chunks(reply->chunks() + evicted.chunks);
    reply->set_bytes(reply->bytes() + evicted.bytes);
    driver_.Dispatch();
  } while (page != 0 && reply->bytes() < wanted && driver_.clock().Mono() < until);
  return absl::OkStatus();
}

uint64_t AdminService::EvictingBytes() {
  uint64_t sum = 0;
  for (const StoreView& store :
       driver_.With([](MasterCore&core, MonoTime now) { return core.Stores(now); })) {
    sum += store.evicting_bytes;
  }
  return sum;
}

void AdminService::Sweep() {
  {
    MutexLock lock(mutex_);
    if (evicts_.empty()) return;
  }
  const uint64_t evicting = EvictingBytes();
  const MonoTime now = driver_.clock().Mono();
  std::vector<Reactor*> over;
  {
    MutexLock lock(mutex_);
    const auto still = [&](const WaitingEvict& e) {
      return now < e.until && evicting > e.evicting_before;
    };
    const auto first_over = std::stable_partition(evicts_.begin(), evicts_.end(), still);
    for (auto it = first_over; it != evicts_.end(); ++it) over.push_back(it->reactor);
    evicts_.erase(first_over, evicts_.end());
  }
  for (Reactor* reactor : over) reactor->Finish(grpc::Status::OK);
}

void AdminService::Close() {
  std::vector<WaitingEvict> rest;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    rest.swap(evicts_);
  }
  for (const WaitingEvict& evict : rest) evict.reactor->Finish(grpc::Status::OK);
}

AdminService::Reactor* AdminService::Version(Context* context, const admin::VersionRequest*,
                                             admin::VersionReply* reply) {
  reply->set_software_version(options_.software_version);
  reply->set_build_mode(options_.build_mode);
  reply->set_commit(options_.commit);
  reply->set_protocol_major(transport::kProtocolMajor);
  reply->set_pool_id(options_.pool_id.ToHex());
  reply->set_epoch(driver_.With([](MasterCore& core, MonoTime) { return core.epoch().value; }));
  Reactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace cistern::master
