// A pool in the test's own process: one master and some stores, with the real protocol. The master
// knows at once what the stores hold.
#ifndef CISTERN_CLIENT_TESTING_FAKE_POOL_H_
#define CISTERN_CLIENT_TESTING_FAKE_POOL_H_

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/client.h"
#include "client/testing/fake_store.h"
#include "proto/master.pb.h"
#include "transport/server.h"

namespace cistern {

// Thread-safe.
class FakeMaster final : public transport::RequestHandler {
 public:
  explicit FakeMaster(std::vector<std::unique_ptr<FakeStore>>* stores) : stores_(*stores) {}
  ~FakeMaster() override { Stop(); }

  void Start(const std::string& token, const PoolId& pool_id, uint16_t port = 0);
  void Stop();
  uint16_t port() const { return server_->port(); }
  uint64_t connections() const { return server_->stats().connections; }

  // Where absent chunks go. -1: refused.
  void set_place_on(int store) { place_on_ = store; }
  // Chunks that another operation is putting now.
  void SetInProgress(const KeyId& id);
  // Says of the stores something else than the truth: these are where lookups say, in order.
  void SetLookupAnswer(const KeyId& id, std::vector<int> stores);
  // The next `lookups` that ask for it (existence checks count) do not see it.
  void HideFor(const KeyId& id, int lookups);
  // A new version of the store directory is handed out from now on.
  void BumpDirectory() { ++directory_version_; }
  // The next request that names a map is told that it is stale.
  void BumpMap() { ++map_version_; }
  // Takes requests and never answers.
  void set_silent(bool silent) { silent_ = silent; }
  // Takes this long over each request, one after the other.
  void set_delay(absl::Duration delay) { delay_ms_ = absl::ToInt64Milliseconds(delay); }
  // Says that the stores listen here instead of where they do; 0 = where they do.
  void set_store_port(uint16_t port) {
    store_port_ = port;
    BumpDirectory();
  }

  std::atomic<int> lookups{0};
  std::atomic<int> places{0};
  std::atomic<int> leases{0};
  std::atomic<int> released{0};
  std::atomic<size_t> largest_request{0};  // keys
  std::set<std::string> operation_ids();

  void OnRequest(std::unique_ptr<transport::ServerCall> call) override;

 private:
  void Lookup(transport::ServerCall& call);
  void Place(transport::ServerCall& call);
  void Exists(transport::ServerCall& call);
  void Remove(transport::ServerCall& call);
  void OpenNamespace(transport::ServerCall& call);
  wire::StoreDirectory Directory();
  template <typename Request, typename Reply>
  bool Stale(const Request& request, Reply* reply);
  // Where lookups say a chunk is.
  std::vector<int> StoresOf(const ChunkName& name);
  bool Hidden(const ChunkName& name);

  std::vector<std::unique_ptr<FakeStore>>& stores_;
  std::unique_ptr<transport::WireServer> server_;
  std::atomic<int> place_on_{0};
  std::atomic<uint64_t> directory_version_{1};
  std::atomic<uint64_t> map_version_{1};
  std::atomic<bool> silent_{false};
  std::atomic<int64_t> delay_ms_{0};
  std::atomic<uint16_t> store_port_{0};
  Mutex mutex_;
  std::set<std::string> in_progress_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<int>> answers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> hidden_ ABSL_GUARDED_BY(mutex_);              // for so many lookups
  std::map<std::string, std::string> namespaces_ ABSL_GUARDED_BY(mutex_);  // name -> fingerprint
  std::set<std::string> operations_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<transport::ServerCall>> held_ ABSL_GUARDED_BY(mutex_);
};

class FakePool {
 public:
  explicit FakePool(int store_count, const std::string& token = "");
  FakeMaster& master() { return master_; }
  FakeStore& store(int i) { return *stores_[static_cast<size_t>(i)]; }
  // Starts the stores anew, reached by shared memory too, at sockets in `folder`. Before a client
  // connects.
  void ServeShm(const std::string& folder);
  // To reach it.
  ClientOptions options() const;

 private:
  const std::string token_;
  std::vector<std::unique_ptr<FakeStore>> stores_;
  FakeMaster master_{&stores_};
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_TESTING_FAKE_POOL_H_
