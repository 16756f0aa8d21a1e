#include "client/store_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/data.pb.h"

namespace cistern {
namespace {

absl::Status CheckBound(transport::FrameType type, std::string_view meta, uint32_t ref) {
  wire::NamespaceBound bound;
  if (type != transport::FrameType::kNamespaceBound ||
      !bound.ParseFromArray(meta.data(), static_cast<int>(meta.size())) || bound.ns_ref() != ref) {
    return absl::InternalError("the store numbers namespaces otherwise than by their order");
  }
  return absl::OkStatus();
}

}  // namespace

void StoreTable::Learn(const wire::StoreDirectory& directory) {
  MutexLock lock(mutex_);
  auto by_index = std::make_shared<std::vector<LocalStore>>();
  for (const wire::StoreEntry& entry : directory.stores()) {
    const absl::StatusOr<StoreId> id = StoreId::Parse(entry.store_id());
    if (!id.ok() || entry.index() >= StoreIndex::kNone) continue;
    const LocalStore local = InternLocked(*id);
    if (!local.known()) continue;
    if (by_index->size() <= entry.index()) {
      by_index->resize(entry.index() + 1, LocalStore(LocalStore::kNone));
    }
    (*by_index)[entry.index()] = local;
    stores_[local.value].serving = entry.serving();
    LearnStoreLocked(entry, &stores_[local.value]);
  }
  by_index_ = std::move(by_index);
  version_ = directory.version();
}

void StoreTable::LearnStoreLocked(const wire::StoreEntry& entry, Store* store) {
  const auto endpoint = std::find_if(
      entry.endpoints().begin(), entry.endpoints().end(),
      [](const auto& e) { return !e.host().empty() && e.port() > 0 && e.port() <= 0xFFFF; });
  if (endpoint == entry.endpoints().end()) return;
  Endpoint found;
  found.id = store->endpoint.id;
  found.host = endpoint->host();
  found.port = static_cast<uint16_t>(endpoint->port());
  if (const auto boot_id = BootId::Parse(endpoint->boot_id()); boot_id.ok()) {
    found.boot_id = *boot_id;
  }
  found.socket_path = endpoint->socket_path();
  found.no_rdma = endpoint->no_rdma();
  if (endpoint->rdma_port() > 0 && endpoint->rdma_port() <= 0xFFFF) {
    found.rdma_port = static_cast<uint16_t>(endpoint->rdma_port());
    found.rdma_addresses.assign(endpoint->rdma_addresses().begin(),
                                endpoint->rdma_addresses().end());
    if (found.rdma_addresses.empty()) found.rdma_addresses.push_back(found.host);
  }
  const bool moved = found != store->endpoint;
  if (!moved && store->incarnation == entry.incarnation()) return;
  store->endpoint = std::move(found);
  store->incarnation = entry.incarnation();
  // A restart at the same address is the channel's to notice: it connects again by itself.
  if (moved && store->channel != nullptr) {
    retired_.push_back(std::move(store->channel));
    store->channel = nullptr;
    store->binds = BindList();
  }
}

uint64_t StoreTable::directory_version() const {
  MutexLock lock(mutex_);
  return version_;
}

StoreTable::Translation StoreTable::translation() const {
  Translation translation;
  MutexLock lock(mutex_);
  translation.by_index_ = by_index_;
  return translation;
}

LocalStore StoreTable::InternLocked(const StoreId& id) {
  const auto found = numbers_.find(id);
  if (found != numbers_.end()) return LocalStore(found->second);
  if (stores_.size() >= LocalStore::kNone) return LocalStore(LocalStore::kNone);
  const auto number = static_cast<uint16_t>(stores_.size());
  stores_.emplace_back().endpoint.id = id;
  numbers_.emplace(id, number);
  return LocalStore(number);
}

LocalStore StoreTable::Intern(const StoreId& id) {
  MutexLock lock(mutex_);
  return InternLocked(id);
}

StoreId StoreTable::IdOf(LocalStore store) const {
  MutexLock lock(mutex_);
  return store.value < stores_.size() ? stores_[store.value].endpoint.id : StoreId{};
}

std::string StoreTable::NameOf(LocalStore store) const {
  MutexLock lock(mutex_);
  if (store.value >= stores_.size()) return "unknown";
  const Endpoint& e = stores_[store.value].endpoint;
  return e.host.empty() ? e.id.ToHex() : absl::StrCat(e.host, ":", e.port);
}

size_t StoreTable::size() const {
  MutexLock lock(mutex_);
  return stores_.size();
}

std::vector<StoreTable::Endpoint> StoreTable::Endpoints() const {
  std::vector<Endpoint> endpoints;
  MutexLock lock(mutex_);
  for (const Store& store : stores_) {
    if (!store.endpoint.host.empty()) endpoints.push_back(store.endpoint);
  }
  return endpoints;
}

std::vector<StoreTable::Listed> StoreTable::Stores() const {
  std::vector<Listed> listed;
  MutexLock lock(mutex_);
  for (const LocalStore local : *by_index_) {
    if (!local.known()) continue;
    listed.push_back({stores_[local.value].endpoint.id, local, stores_[local.value].serving});
  }
  std::sort(listed.begin(), listed.end(),
            [](const Listed& a, const Listed& b) { return a.id.view() < b.id.view(); });
  return listed;
}

absl::StatusOr<StoreTable::Link> StoreTable::Connect(LocalStore store, const NamespaceBinding& ns) {
  MutexLock lock(mutex_);
  if (store.value >= stores_.size() || stores_[store.value].endpoint.host.empty()) {
    return absl::UnavailableError("no address of the store is known");
  }
  Store& s = stores_[store.value];
  if (s.channel == nullptr) {
    CISTERN_ASSIGN_OR_RETURN(s.channel, make_channel_(s.endpoint));
  }
  const uint32_t ref = s.binds.Bind(*s.channel, transport::FrameType::kBindNamespace, ns.id,
                                    ns.store_meta, CheckBound);
  return Link{s.channel, ref};
}

void StoreTable::ReapRetired() {
  std::vector<std::shared_ptr<transport::Channel>> dead;
  MutexLock lock(mutex_);
  if (retired_.empty()) return;
  // Nobody can take another reference to one of these, so a count of 1 stays.
  const auto alive = std::partition(retired_.begin(), retired_.end(),
                                    [](const auto& c) { return c.use_count() > 1; });
  std::move(alive, retired_.end(), std::back_inserter(dead));
  retired_.erase(alive, retired_.end());
}

void StoreTable::AbandonAfterFork() {
  // A thread that is not in this process may have held it at the fork: then the sockets stay.
  if (!mutex_.TryLock()) return;
  for (Store& store : stores_) {
    if (store.channel != nullptr) store.channel->AbandonAfterFork();
  }
  for (const auto& channel : retired_) channel->AbandonAfterFork();
  mutex_.Unlock();
}

}  // namespace cistern
