#include "master/store_table.h"

namespace cistern::master {

const char* PlaceRefusalName(PlaceRefusal refusal) {
  switch (refusal) {
    case PlaceRefusal::kNoStore:
      return "no_store";
    case PlaceRefusal::kNoRoom:
      return "no_room";
    case PlaceRefusal::kTableFull:
      return "table_full";
  }
  return "";
}

const char* StoreStateName(StoreState state) {
  switch (state) {
    case StoreState::kServing:
      return "serving";
    case StoreState::kSyncing:
      return "syncing";
    case StoreState::kSuspect:
      return "suspect";
    case StoreState::kDead:
      return "dead";
  }
  return "?";
}

Store* StoreTable::Find(const StoreId& id) {
  auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : at(it->second);
}

Store* StoreTable::FindOrAdd(const StoreId& id) {
  if (Store* known = Find(id); known != nullptr) return known;
  StoreIndex index(StoreIndex::kNone);
  // Indices of forgotten stores are taken again only when there are no fresh ones: a client's old
  // answers name them.
  if (stores_.size() < StoreIndex::kNone) {
    index = StoreIndex(static_cast<uint16_t>(stores_.size()));
    stores_.push_back(nullptr);
    flags_.push_back(0);
  } else {
    for (const auto& store : stores_) {
      if (store->forgotten && !store->sweeping) index = store->index;
    }
    if (index.value == StoreIndex::kNone) return nullptr;
    by_id_.erase(at(index)->id);
  }
  auto store = std::make_unique<Store>();
  store->index = index;
  store->id = id;
  by_id_[id] = index;
  stores_[index.value] = std::move(store);
  return stores_[index.value].get();
}

void StoreTable::Publish(const Store& store) {
  const bool serving = store.state != StoreState::kDead;
  const uint8_t before = flags_[store.index.value];
  const uint8_t flags = static_cast<uint8_t>(
      (serving ? kServing : 0) | (store.hide_unmarked ? kHide : 0) | (store.parity ? kParity : 0));
  flags_[store.index.value] = flags;
  if (((before ^ flags) & kServing) != 0) ++directory_version_;
}

void StoreTable::FillDirectory(wire::StoreDirectory* out) const {
  out->set_version(directory_version_);
  for (const auto& store : stores_) {
    if (store->forgotten) continue;
    wire::StoreEntry& entry = *out->add_stores();
    entry.set_index(store->index.value);
    entry.set_store_id(store->id.bytes.data(), store->id.bytes.size());
    entry.set_incarnation(store->incarnation);
    for (const wire::Endpoint& endpoint : store->endpoints) *entry.add_endpoints() = endpoint;
    entry.set_serving(Placeable(*store));
    entry.set_name(store->name);
  }
}

}  // namespace cistern::master
