#include "client/testing/fake_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/columns.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "transport/identity.h"
#include "transport/tcp/tcp.h"

namespace cistern {

using transport::FrameType;
using transport::ServerCall;

namespace {

template <typename Request>
Request Parse(const ServerCall& call) {
  Request request;
  CISTERN_CHECK(request.ParseFromString(std::string(call.meta())));
  return request;
}

// The chunks of a request: keys x shards.
template <typename Request>
std::vector<ChunkName> ChunksOf(const Request& request) {
  std::vector<ChunkName> chunks;
  const uint32_t shards = std::max<uint32_t>(request.shard_count(), 1);
  for (size_t k = 0; k < request.ids().size() / 16; ++k) {
    for (uint32_t s = 0; s < shards; ++s) {
      chunks.push_back({KeyId::FromBytes(request.ids().data() + 16 * k),
                        Shard(static_cast<uint16_t>(request.shard_first() + s))});
    }
  }
  return chunks;
}

}  // namespace

void FakeMaster::Start(const std::string& token, const PoolId& pool_id, uint16_t port) {
  transport::TcpServerOptions options;
  options.port = port;
  options.io_threads = 1;
  options.identity.kind = wire::PEER_MASTER;
  options.identity.token = token;
  options.identity.pool_id = pool_id;
  options.identity.peer_id = std::string(16, 'm');
  options.identity.incarnation = 1;
  auto server = transport::ListenTcp(options, this);
  CISTERN_CHECK(server.ok());
  server_ = std::move(*server);
}

void FakeMaster::Stop() {
  if (server_ != nullptr) server_->Stop();
  MutexLock lock(mutex_);
  held_.clear();
}

void FakeMaster::SetInProgress(const KeyId& id) {
  MutexLock lock(mutex_);
  in_progress_.insert(std::string(id.view()));
}

void FakeMaster::SetLookupAnswer(const KeyId& id, std::vector<int> stores) {
  MutexLock lock(mutex_);
  answers_[std::string(id.view())] = std::move(stores);
}

void FakeMaster::HideFor(const KeyId& id, int lookups) {
  MutexLock lock(mutex_);
  hidden_[std::string(id.view())] = lookups;
}

bool FakeMaster::Hidden(const ChunkName& name) {
  MutexLock lock(mutex_);
  const auto found = hidden_.find(std::string(name.id.view()));
  return found != hidden_.end() && found->second-- > 0;
}

std::set<std::string> FakeMaster::operation_ids() {
  MutexLock lock(mutex_);
  return operations_;
}

std::vector<int> FakeMaster::StoresOf(const ChunkName& name) {
  {
    MutexLock lock(mutex_);
    const auto found = answers_.find(std::string(name.id.view()));
    if (found != answers_.end()) return found->second;
  }
  std::vector<int> out;
  for (size_t s = 0; s < stores_.size(); ++s) {
    if (stores_[s]->Has(name)) out.push_back(static_cast<int>(s));
  }
  return out;
}

wire::StoreDirectory FakeMaster::Directory() {
  wire::StoreDirectory directory;
  directory.set_version(directory_version_);
  for (size_t s = 0; s < stores_.size(); ++s) {
    wire::StoreEntry* entry = directory.add_stores();
    // Indexes of a master's own choice: not 0, 1, 2.
    entry->set_index(static_cast<uint32_t>(10 + s));
    entry->set_store_id(std::string(stores_[s]->id().view()));
    entry->set_incarnation(stores_[s]->incarnation());
    entry->set_serving(true);
    wire::Endpoint* endpoint = entry->add_endpoints();
    endpoint->set_host("127.0.0.1");
    endpoint->set_port(store_port_ != 0 ? store_port_.load() : stores_[s]->port());
    if (stores_[s]->socket_path().empty()) continue;
    endpoint->set_boot_id(std::string(transport::ReadBootId().view()));
    endpoint->set_socket_path(stores_[s]->socket_path());
  }
  return directory;
}

template <typename Request, typename Reply>
bool FakeMaster::Stale(const Request& request, Reply* reply) {
  if constexpr (requires { request.directory_version(); }) {
    if (request.directory_version() != directory_version_) {
      *reply->mutable_directory() = Directory();
    }
  }
  if (request.map_version() == map_version_) return false;
  reply->mutable_map()->set_version(map_version_);
  return true;
}

void FakeMaster::OnRequest(std::unique_ptr<ServerCall> call) {
  if (silent_) {
    MutexLock lock(mutex_);
    held_.push_back(std::move(call));
    return;
  }
  if (delay_ms_ > 0) Clock::Real().SleepFor(absl::Milliseconds(delay_ms_.load()));
  switch (call->type()) {
    case FrameType::kOpenNamespace:
      return OpenNamespace(*call);
    case FrameType::kMasterBindNamespace: {
      auto& state = call->connection().user_state;
      if (state == nullptr) state = std::make_shared<uint32_t>(0);
      wire::OpenNamespaceReply reply;
      reply.set_ns_ref(++*static_cast<uint32_t*>(state.get()));
      return call->Reply(FrameType::kOpenNamespaceReply, reply.SerializeAsString(), true);
    }
    case FrameType::kGetMaps: {
      wire::GetMapsReply reply;
      Stale(Parse<wire::GetMapsRequest>(*call), &reply);
      return call->Reply(FrameType::kGetMapsReply, reply.SerializeAsString(), true);
    }
    case FrameType::kLookup:
      return Lookup(*call);
    case FrameType::kPlace:
      return Place(*call);
    case FrameType::kExists:
      return Exists(*call);
    case FrameType::kRemove:
      return Remove(*call);
    case FrameType::kRelease:
      ++released;
      return call->Reply(FrameType::kReleaseReply, "", true);
    case FrameType::kPing:
      return call->Reply(FrameType::kPong, "", true);
    default:
      return call->Fail(absl::UnimplementedError("not in this fake"));
  }
}

void FakeMaster::OpenNamespace(ServerCall& call) {
  const auto request = Parse<wire::OpenNamespaceRequest>(call);
  {
    MutexLock lock(mutex_);
    const auto [found, is_new] = namespaces_.emplace(request.name(), request.fingerprint());
    if (!is_new && found->second != request.fingerprint()) {
      return call.Fail(absl::FailedPreconditionError(
          absl::StrCat(request.name(), " is in use with fingerprint ", found->second)));
    }
  }
  wire::OpenNamespaceReply reply;
  const NamespaceId id = DeriveNamespaceId("", request.name(), request.fingerprint());
  reply.mutable_info()->set_id(std::string(id.view()));
  reply.mutable_info()->set_name(request.name());
  reply.mutable_info()->set_fingerprint(request.fingerprint());
  *reply.mutable_info()->mutable_options() = request.options();
  call.Reply(FrameType::kOpenNamespaceReply, reply.SerializeAsString(), true);
}

void FakeMaster::Lookup(ServerCall& call) {
  ++lookups;
  const auto request = Parse<wire::LookupRequest>(call);
  wire::LookupReply reply;
  if (!Stale(request, &reply)) {
    const std::vector<ChunkName> chunks = ChunksOf(request);
    const size_t shards = std::max<uint32_t>(request.shard_count(), 1);
    const size_t keys = chunks.size() / shards;
    largest_request = std::max<size_t>(largest_request, chunks.size());
    constexpr size_t kReplicas = 2;
    reply.set_replica_columns(kReplicas);
    ColumnWriter<uint16_t> stores(reply.mutable_stores(), kReplicas * chunks.size());
    reply.set_present(std::string(BitmapBytes(keys), '\0'));
    for (size_t k = 0; k < keys; ++k) {
      bool all = true;
      for (size_t s = 0; s < shards; ++s) {
        const size_t c = k * shards + s;
        const std::vector<int> where = Hidden(chunks[c]) ? std::vector<int>() : StoresOf(chunks[c]);
        all = all && !where.empty();
        for (size_t r = 0; r < kReplicas; ++r) {
          stores.Set(r * chunks.size() + c,
                     r < where.size() ? static_cast<uint16_t>(10 + where[r]) : 0xFFFF);
        }
      }
      if (all) BitmapSet(reply.mutable_present(), k);
      if (all && reply.leading_run() == k) reply.set_leading_run(static_cast<uint32_t>(k + 1));
    }
    if (!request.no_lease() && (reply.leading_run() > 0 || request.sparse())) {
      ++leases;
      reply.set_lease_id(std::string(RandomId<LeaseId>().view()));
      reply.set_lease_ms(request.lease_ms() == 0 ? 10'000 : request.lease_ms());
    }
  }
  call.Reply(FrameType::kLookupReply, reply.SerializeAsString(), true);
}

void FakeMaster::Place(ServerCall& call) {
  ++places;
  const auto request = Parse<wire::PlaceRequest>(call);
  wire::PlaceReply reply;
  if (!Stale(request, &reply)) {
    const std::vector<ChunkName> chunks = ChunksOf(request);
    largest_request = std::max<size_t>(largest_request, chunks.size());
    const std::string zeros(BitmapBytes(chunks.size()), '\0');
    reply.set_present(zeros);
    reply.set_in_progress(zeros);
    reply.set_refused(zeros);
    ColumnWriter<uint16_t> stores(reply.mutable_stores(), chunks.size());
    for (size_t c = 0; c < chunks.size(); ++c) {
      const std::vector<int> where = StoresOf(chunks[c]);
      MutexLock lock(mutex_);
      operations_.insert(request.operation_id());
      stores.Set(c, 0xFFFF);
      if (!where.empty()) {
        BitmapSet(reply.mutable_present(), c);
        stores.Set(c, static_cast<uint16_t>(10 + where[0]));
      } else if (in_progress_.count(std::string(chunks[c].id.view())) > 0) {
        BitmapSet(reply.mutable_in_progress(), c);
      } else if (place_on_ < 0) {
        BitmapSet(reply.mutable_refused(), c);
        reply.set_refused_reason("no store has room");
      } else {
        stores.Set(c, static_cast<uint16_t>(10 + place_on_));
      }
    }
  }
  call.Reply(FrameType::kPlaceReply, reply.SerializeAsString(), true);
}

void FakeMaster::Exists(ServerCall& call) {
  const auto request = Parse<wire::ExistsRequest>(call);
  wire::ExistsReply reply;
  if (!Stale(request, &reply)) {
    const std::vector<ChunkName> chunks = ChunksOf(request);
    const size_t shards = std::max<uint32_t>(request.shard_count(), 1);
    reply.set_present(std::string(BitmapBytes(chunks.size() / shards), '\0'));
    for (size_t k = 0; k < chunks.size() / shards; ++k) {
      bool all = true;
      for (size_t s = 0; s < shards; ++s) {
        const ChunkName& name = chunks[k * shards + s];
        all = all && !Hidden(name) && !StoresOf(name).empty();
      }
      if (all) BitmapSet(reply.mutable_present(), k);
    }
  }
  call.Reply(FrameType::kExistsReply, reply.SerializeAsString(), true);
}

void FakeMaster::Remove(ServerCall& call) {
  const auto request = Parse<wire::RemoveRequest>(call);
  wire::RemoveReply reply;
  if (!Stale(request, &reply)) {
    for (const ChunkName& name : ChunksOf(request)) {
      bool found = false;
      for (auto& store : stores_) found = store->Erase(name) || found;
      reply.mutable_statuses()->push_back(
          static_cast<char>(found ? wire::CHUNK_OK : wire::CHUNK_NOT_FOUND));
      reply.set_removed_count(reply.removed_count() + (found ? 1 : 0));
    }
  }
  call.Reply(FrameType::kRemoveReply, reply.SerializeAsString(), true);
}

FakePool::FakePool(int store_count, const std::string& token) : token_(token) {
  const auto pool_id = RandomId<PoolId>();
  for (int i = 0; i < store_count; ++i) {
    stores_.push_back(std::make_unique<FakeStore>());
    stores_.back()->set_pool_id(pool_id);
    stores_.back()->Start(token);
  }
  master_.Start(token, pool_id);
}

void FakePool::ServeShm(const std::string& folder) {
  for (size_t i = 0; i < stores_.size(); ++i) {
    stores_[i]->Stop();
    stores_[i]->set_socket_path(absl::StrCat(folder, "/", i));
    stores_[i]->Start(token_);
  }
}

ClientOptions FakePool::options() const {
  ClientOptions options;
  options.master_address = absl::StrCat("127.0.0.1:", master_.port());
  options.deadline = absl::Seconds(30);  // sanitizers and busy hosts are slow
  return options;
}

}  // namespace cistern
