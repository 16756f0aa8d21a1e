// The stores this client has heard of, and the channels to them.
//
// The master names stores by an index of its own, which a restarted master may hand out anew. Here
// each store id gets a number that keeps its meaning as long as the client lives: caches and
// tickets use that, and replies are translated when they arrive.
#ifndef CISTERN_CLIENT_STORE_TABLE_H_
#define CISTERN_CLIENT_STORE_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "client/namespace_binding.h"
#include "client/placement_cache.h"
#include "proto/types.pb.h"
#include "transport/channel.h"
#include "transport/identity.h"
#include "transport/io_context.h"

namespace cistern {

// Thread-safe.
class StoreTable {
 public:
  // Where a store can be reached.
  struct Endpoint {
    StoreId id;
    std::string host;
    uint16_t port = 0;
    BootId boot_id = {};      // of its host; zero = not told
    std::string socket_path;  // on that host; "" = none
    uint16_t rdma_port = 0;   // 0 = none
    std::vector<std::string> rdma_addresses = {};
    std::string no_rdma = {};  // why not
    friend bool operator==(const Endpoint&, const Endpoint&) = default;
  };
  // Makes a channel to a store; tests give their own.
  using ChannelFactory =
      std::function<absl::StatusOr<std::unique_ptr<transport::Channel>>(const Endpoint&)>;

  explicit StoreTable(ChannelFactory make_channel) : make_channel_(std::move(make_channel)) {}

  // Takes in what a reply brought. Entries that make no sense are skipped.
  void Learn(const wire::StoreDirectory& directory);
  uint64_t directory_version() const;

  // Translates a reply's store column. One lock for the whole column.
  class Translation {
   public:
    LocalStore operator[](uint16_t master_index) const {
      return master_index < by_index_->size() ? (*by_index_)[master_index]
                                              : LocalStore(LocalStore::kNone);
    }

   private:
    friend class StoreTable;
    std::shared_ptr<const std::vector<LocalStore>> by_index_;
  };
  Translation translation() const;

  // The number of a store id, new or old; kNone when 65,535 are known.
  LocalStore Intern(const StoreId& id);
  StoreId IdOf(LocalStore store) const;
  // For people: "127.0.0.1:7610", or the id.
  std::string NameOf(LocalStore store) const;
  size_t size() const;
  // Of every store with an address.
  std::vector<Endpoint> Endpoints() const;
  // The stores of the newest directory, in order of their ids.
  struct Listed {
    StoreId id;
    LocalStore store;
    bool serving = false;
  };
  std::vector<Listed> Stores() const;

  struct Link {
    std::shared_ptr<transport::Channel> channel;
    uint32_t ns_ref = 0;
  };
  // The way to a store, with the namespace bound. Makes no connection. Unavailable: no address of
  // it is known, or none that the wire asked for leads to.
  absl::StatusOr<Link> Connect(LocalStore store, const NamespaceBinding& ns);

  // Lets go of channels to where stores were before they moved. Only from a user's thread, never
  // from a step: a channel's end waits for its calls.
  void ReapRetired();
  // Fork child: forgets the sockets.
  void AbandonAfterFork();

 private:
  struct Store {
    Endpoint endpoint;  // the host is "" before one is known
    uint64_t incarnation = 0;
    bool serving = false;
    std::shared_ptr<transport::Channel> channel;
    BindList binds;
  };
  LocalStore InternLocked(const StoreId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LearnStoreLocked(const wire::StoreEntry& entry, Store* store)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ChannelFactory make_channel_;
  mutable Mutex mutex_;
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Store> stores_ ABSL_GUARDED_BY(mutex_);  // by local number
  absl::flat_hash_map<StoreId, uint16_t> numbers_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const std::vector<LocalStore>> by_index_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const std::vector<LocalStore>>();
  std::vector<std::shared_ptr<transport::Channel>> retired_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_STORE_TABLE_H_
