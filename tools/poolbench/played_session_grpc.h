// A played store's session with a real master, and many of them.
//
//   1. hello_auth ->  <- auth_ack  auth ->  hello ->  <- hello_ack     (proto/store.proto)
//   2. a snapshot, if the master asks for one
//   3. records as chunks are committed; evictions are carried out and reported at once; heartbeats
#ifndef CISTERN_TOOLS_POOLBENCH_PLAYED_SESSION_GRPC_H_
#define CISTERN_TOOLS_POOLBENCH_PLAYED_SESSION_GRPC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "tools/poolbench/store_player.h"

namespace cistern::poolbench {

// One store. Owns the thread that reads while connected. Thread-safe, but Connect and Disconnect
// are one thread's. Every stream has a deadline, so no write blocks for ever.
class PlayedSession {
 public:
  static constexpr absl::Duration kLongestSession = absl::Hours(2);

  PlayedSession(StorePlayer::Options store, std::string token);
  ~PlayedSession();  // disconnects

  // Handshake, hello and the snapshot. Unavailable: no master there, or it hung up; else what it
  // said.
  absl::Status Connect(const std::string& address);
  void Disconnect();
  // Each Unavailable once the stream has ended.
  absl::Status Commit(uint64_t count);
  absl::Status SendHeartbeat();
  // Disconnected: as StorePlayer::Restart.
  void Restart(uint64_t keep);

  uint64_t held() const;
  uint64_t committed() const;
  uint64_t evicted() const;
  bool Holds(uint64_t number) const;

 private:
  struct Stream;
  absl::Status Handshake(Stream& stream);
  void ReadLoop(Stream& stream);
  absl::Status WriteLocked(const wire::StoreMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string token_;
  std::unique_ptr<Stream> stream_;
  std::thread reader_;

  // Also orders the stream's writes, and so is held over them: they end with the stream.
  mutable Mutex mutex_;
  StorePlayer player_ ABSL_GUARDED_BY(mutex_);
  uint64_t highest_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
};

// All stores of a pool, with a thread that sends their heartbeats while they are connected.
class PlayedStores {
 public:
  struct Options {
    uint64_t count = 1;
    uint64_t capacity_bytes = 0;  // of each
    uint32_t chunk_bytes = 64 << 10;
    wire::NamespaceInfo ns;
    std::string token;
  };
  PlayedStores(const Options& options, Clock& clock);
  ~PlayedStores();

  absl::Status Connect(const std::string& address);
  void Disconnect();
  // `count` chunks more, dealt in batches of `batch` to one store after the other.
  absl::Status Commit(uint64_t count, uint64_t batch);
  // Each keeps its share of `keep` chunks.
  void Restart(uint64_t keep);

  size_t size() const { return stores_.size(); }
  PlayedSession& store(size_t i) { return *stores_[i]; }
  uint64_t held() const;
  uint64_t evicted() const;

 private:
  void Beat();

  Clock& clock_;
  std::vector<std::unique_ptr<PlayedSession>> stores_;
  size_t next_store_ = 0;
  std::thread beating_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_PLAYED_SESSION_GRPC_H_
