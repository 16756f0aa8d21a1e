#include "master/admin_removals.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/key_hash.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/string_view.h"
#include "proto/master.pb.h"

namespace cistern::master {
namespace {

absl::Status NoSuchNamespace(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("no namespace is called '", name, "'"));
}

absl::StatusOr<NamespaceView> FindByName(MasterCore& core, const std::string& name) {
  const NamespaceIndex index = core.FindNamespace("", name);
  if (index.none()) return NoSuchNamespace(name);
  for (NamespaceView& view : core.Namespaces()) {
    if (view.index == index) return std::move(view);
  }
  return NoSuchNamespace(name);
}

// A request as a client with the current map would make it.
absl::StatusOr<wire::RemoveRequest> RequestFor(MasterCore& core, const std::string& ns_id,
                                               bool force) {
  wire::BindNamespaceRequest bind;
  bind.set_id(ns_id);
  wire::OpenNamespaceReply bound;
  CISTERN_RETURN_IF_ERROR(core.BindNamespace(bind, &bound));
  wire::GetMapsReply maps;
  core.GetMaps(wire::GetMapsRequest(), &maps);
  wire::RemoveRequest request;
  request.set_ns_ref(bound.ns_ref());
  request.set_map_version(maps.map().version());
  request.set_force(force);
  return request;
}

// The ids that a request names, one after the other.
absl::StatusOr<std::string> NamedIds(const admin::RemoveChunksRequest& request,
                                     const NamespaceId& ns) {
  if (request.ids_size() + request.keys_size() > AdminRemovals::kMaxNames) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", AdminRemovals::kMaxNames, " chunks in one call"));
  }
  std::string ids;
  for (const std::string& hex : request.ids()) {
    const absl::StatusOr<KeyId> id = KeyId::ParseHex(hex);
    if (!id.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("'", hex, "': ", id.status().message()));
    }
    ids.append(id->view());
  }
  const KeyHasher hasher(ns);
  for (const std::string& key : request.keys()) {
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a key has 1 to ", kMaxKeyBytes, " bytes"));
    }
    ids.append(hasher.Hash(key).view());
  }
  return ids;
}

using Requests = std::vector<wire::RemoveRequest>;

absl::StatusOr<Requests> RequestsFor(MasterCore& core, const admin::RemoveChunksRequest& request) {
  const bool named = request.ids_size() + request.keys_size() > 0;
  if (named + request.all_in_namespace() + request.all_in_pool() != 1) {
    return absl::InvalidArgumentError(
        "say which chunks: ids or keys, or all of a namespace, or all of the pool");
  }
  Requests requests;
  if (request.all_in_pool()) {
    wire::RemoveRequest all;
    all.set_all(true);
    all.set_whole_pool(true);
    all.set_force(request.force());
    requests.push_back(std::move(all));
    return requests;
  }
  CISTERN_ASSIGN_OR_RETURN(const NamespaceView view, FindByName(core, request.namespace_name()));
  CISTERN_ASSIGN_OR_RETURN(wire::RemoveRequest remove,
                           RequestFor(core, view.info.id(), request.force()));
  if (request.all_in_namespace()) {
    remove.set_all(true);
    requests.push_back(std::move(remove));
    return requests;
  }
  remove.set_shard_first(request.shard_first());
  remove.set_shard_count(request.shard_count());
  CISTERN_ASSIGN_OR_RETURN(*remove.mutable_ids(),
                           NamedIds(request, NamespaceId::FromBytes(view.info.id().data())));
  requests.push_back(std::move(remove));
  return requests;
}

// Removals of one administrator's call, the answers summed.
struct Batch {
  Mutex mutex;
  size_t left ABSL_GUARDED_BY(mutex) = 0;
  absl::Status status ABSL_GUARDED_BY(mutex);
  admin::RemoveChunksReply sum ABSL_GUARDED_BY(mutex);
  AdminRemovals::ChunksDone done;  // the last one's

  // True when nothing is left.
  bool Add(const absl::Status& s, const wire::RemoveReply& reply, bool complete) {
    MutexLock lock(mutex);
    if (!s.ok()) status = s;
    if (reply.statuses().empty()) {  // a whole namespace
      sum.set_removed(sum.removed() + reply.removed_count());
      sum.set_refused(sum.refused() + reply.refused_count());
      sum.set_unreachable(sum.unreachable() + reply.unreachable_count());
      if (!complete) sum.set_pending(sum.pending() + 1);
    }
    for (const char c : reply.statuses()) {
      switch (static_cast<wire::ChunkStatus>(c)) {
        case wire::CHUNK_OK:
          sum.set_removed(sum.removed() + 1);
          break;
        case wire::CHUNK_NOT_FOUND:
          sum.set_not_found(sum.not_found() + 1);
          break;
        case wire::CHUNK_FAILED_PRECONDITION:
          sum.set_refused(sum.refused() + 1);
          break;
        default:
          sum.set_pending(sum.pending() + 1);
      }
    }
    return --left == 0;
  }
};

}  // namespace

void AdminRemovals::RemoveChunks(const admin::RemoveChunksRequest& request, MonoTime deadline,
                                 ChunksDone done) {
  absl::StatusOr<Requests> requests =
      driver_.With([&](MasterCore& core, MonoTime) { return RequestsFor(core, request); });
  if (!requests.ok() || requests->empty()) {
    return done(requests.status(), admin::RemoveChunksReply());
  }
  const auto batch = std::make_shared<Batch>();
  batch->done = std::move(done);
  {
    MutexLock lock(batch->mutex);
    batch->left = requests->size();
  }
  for (wire::RemoveRequest& remove : *requests) {
    driver_.Remove(std::make_unique<Removal>(
        std::move(remove), deadline,
        [batch](absl::Status status, wire::RemoveReply& reply, bool complete) {
          if (!batch->Add(status, reply, complete)) return;
          absl::Status outcome;
          admin::RemoveChunksReply sum;
          {
            MutexLock lock(batch->mutex);
            outcome = batch->status;
            sum = batch->sum;
          }
          batch->done(outcome, sum);
        }));
  }
}

void AdminRemovals::RemoveNamespace(const admin::RemoveNamespaceRequest& request, MonoTime deadline,
                                    NamespaceDone done) {
  absl::StatusOr<wire::RemoveRequest> all =
      driver_.With([&](MasterCore& core, MonoTime) -> absl::StatusOr<wire::RemoveRequest> {
        CISTERN_ASSIGN_OR_RETURN(const NamespaceView view, FindByName(core, request.name()));
        return RequestFor(core, view.info.id(), request.force());
      });
  if (!all.ok()) return done(all.status(), admin::RemoveNamespaceReply());
  all->set_all(true);
  driver_.Remove(std::make_unique<Removal>(
      *std::move(all), deadline,
      [this, name = request.name(), force = request.force(), done = std::move(done)](
          absl::Status status, wire::RemoveReply& reply, bool complete) mutable {
        const admin::RemoveNamespaceReply none;
        if (!status.ok()) return done(status, none);
        if (reply.refused_count() > 0) {
          return done(absl::FailedPreconditionError(absl::StrCat(
                          reply.refused_count(), " chunks of '", name,
                          "' are leased or pinned: wait for their leases, or force it")),
                      none);
        }
        if (reply.unreachable_count() > 0 && !force) {
          return done(
              absl::FailedPreconditionError(absl::StrCat(
                  reply.unreachable_count(), " chunks of '", name,
                  "' are in stores that are away, the rest is gone: repeat the command when "
                  "they are back, or force it and they go as soon as they are")),
              none);
        }
        if (!complete) {
          return done(absl::DeadlineExceededError(
                          absl::StrCat("not all stores have removed their chunks of '", name,
                                       "' yet; the name stays: repeat the command")),
                      none);
        }
        DropName(name, reply.removed_count(), std::move(done));
      }));
}

void AdminRemovals::DropName(const std::string& name, uint64_t removed, NamespaceDone done) {
  NamespaceId id;
  const absl::StatusOr<uint64_t> dropped =
      driver_.With([&](MasterCore& core, MonoTime) -> absl::StatusOr<uint64_t> {
        CISTERN_ASSIGN_OR_RETURN(const NamespaceView view, FindByName(core, name));
        id = NamespaceId::FromBytes(view.info.id().data());
        return core.RemoveNamespace(name);
      });
  admin::RemoveNamespaceReply reply;
  if (!dropped.ok()) return done(dropped.status(), reply);
  driver_.Dispatch();
  reply.set_chunks_removed(removed + *dropped);
  state_.WhenNamespaceDurable(
      id, [name, done = std::move(done), reply](absl::Status saved) mutable {
        const std::string what = absl::StrCat("'", name,
                                              "' and its chunks are gone, but a master that "
                                              "is started again may list it until this is saved");
        done(Annotate(saved, what), reply);
      });
}

}  // namespace cistern::master
