// A store in the test's own process, with the real protocol and answers that a real one must never
// give.
#ifndef CISTERN_CLIENT_TESTING_FAKE_STORE_H_
#define CISTERN_CLIENT_TESTING_FAKE_STORE_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "proto/data.pb.h"
#include "transport/server.h"

namespace cistern {

// Thread-safe.
class FakeStore final : public transport::RequestHandler {
 public:
  // What is done to gets, or puts, from now on.
  enum class Fault {
    kNone,
    kNever,        // takes the request and never answers
    kError,        // Unavailable
    kMiss,         // NotFound for every chunk
    kFull,         // puts: ResourceExhausted for every chunk
    kFlippedByte,  // gets: one byte of the payload is wrong
    kOtherChunk,   // gets: another chunk's bytes, with that one's digests and root
    kBadColumns,   // an answer for fewer chunks than were asked for
    kHalf,         // gets: half of the payload that the head announced, then the end
    kLies,         // gets: the head announces more bytes than its chunks have
    kCut,          // gets: half of the payload, then no more and the connection is lost
    kTakenBack,    // gets: all of the payload, then DataLoss for every chunk
  };

  struct Chunk {
    std::string bytes;
    uint32_t part_bytes = 0;
    bool digests = true;
    uint64_t version = 1;
    std::string digested = {};  // what the digests are of, where not of `bytes`
    int flipped_digest = -1;    // this one of the part table has a bit turned, the root has not
  };

  FakeStore();
  ~FakeStore() override;

  // Starts to listen, on `port` or any. Stop() may be followed by another Start().
  void Start(const std::string& token, uint16_t port = 0);
  void Stop();
  // From the next Start() on it is reached by shared memory too, at this socket.
  void set_socket_path(std::string path) { socket_path_ = std::move(path); }
  const std::string& socket_path() const { return socket_path_; }
  uint16_t port() const { return server_->port(); }
  uint64_t connections() const { return server_->stats().connections; }
  const StoreId& id() const { return id_; }
  uint64_t incarnation() const { return incarnation_; }
  const PoolId& pool_id() const { return pool_id_; }
  void set_pool_id(const PoolId& id) { pool_id_ = id; }

  void set_get_fault(Fault fault) { get_fault_ = fault; }
  void set_put_fault(Fault fault) { put_fault_ = fault; }
  // Of the payload of each get: its first `bytes` are sent, the rest waits until more are allowed.
  // At first all are.
  void AllowPayload(uint64_t bytes);

  bool Has(const ChunkName& name) const;
  void Add(const ChunkName& name, Chunk chunk);
  bool Erase(const ChunkName& name);
  size_t size() const;

  // The last get.
  wire::GetRequest last_get() const;
  // Requests seen.
  std::atomic<int> gets{0};
  std::atomic<int> puts{0};
  std::atomic<int> bad_reports{0};
  std::atomic<int> cancelled{0};
  std::atomic<uint64_t> payload_bytes_in{0};

  void OnRequest(std::unique_ptr<transport::ServerCall> call) override;

 private:
  // A get's answer on its way.
  struct Gated {
    std::shared_ptr<transport::ServerCall> call;
    std::string payload;
    size_t sent = 0;
    std::string done;  // wire::GetDone
  };

  void Bind(std::unique_ptr<transport::ServerCall> call);
  void Get(std::shared_ptr<transport::ServerCall> call);
  void SendAllowed(Gated* gated) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Put(std::shared_ptr<transport::ServerCall> call);
  void FinishPut(const std::shared_ptr<transport::ServerCall>& call, const wire::PutRequest& put,
                 const std::string& statuses, const std::string& payload);
  void Hold(std::shared_ptr<transport::ServerCall> call);

  const StoreId id_;
  PoolId pool_id_;
  uint64_t incarnation_ = 0;
  std::string socket_path_;
  std::unique_ptr<transport::WireServer> server_;
  std::unique_ptr<transport::WireServer> shm_server_;  // null without a socket
  std::atomic<Fault> get_fault_{Fault::kNone};
  std::atomic<Fault> put_fault_{Fault::kNone};

  mutable Mutex mutex_;
  std::map<std::pair<std::string, uint16_t>, Chunk> chunks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<transport::ServerCall>> held_ ABSL_GUARDED_BY(mutex_);
  uint64_t allowed_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
  std::vector<Gated> gated_ ABSL_GUARDED_BY(mutex_);
  wire::GetRequest last_get_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_TESTING_FAKE_STORE_H_
