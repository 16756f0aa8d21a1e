// What clients ask on the data port (proto/master.proto), answered from the core.
#ifndef CISTERN_MASTER_FRAME_SERVICE_H_
#define CISTERN_MASTER_FRAME_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/time/time.h"
#include "master/core_driver.h"
#include "master/state_store_rocksdb.h"
#include "proto/master.pb.h"
#include "transport/server.h"

namespace cistern::master {

// Promise: a request whose time has passed is dropped before any work; its columns are checked
// before memory is spent; an answer that depends on durable state leaves after that is on disk.
// Role: the WireServer of the data port calls it. Thread-safe: called on loop threads, which it
// blocks no longer than the core's lock is held for a slice. Borrows driver and state.
class FrameService final : public transport::RequestHandler {
 public:
  struct Options {
    // For requests that name no deadline.
    absl::Duration default_deadline = absl::Seconds(5);
    // A removal waits no longer, whatever the request says.
    absl::Duration max_wait = absl::Seconds(60);
    // Binds of one connection.
    uint32_t max_binds = 65'536;
    uint32_t max_echo_bytes = 64 << 10;
  };
  FrameService(Options options, CoreDriver& driver, RocksStateStore& state);

  void OnConnected(transport::ServerConnection& connection) override;
  void OnRequest(std::unique_ptr<transport::ServerCall> call) override;

 private:
  using Call = std::unique_ptr<transport::ServerCall>;

  // False when the call has been failed: malformed, or too late.
  template <typename Request>
  bool Parse(transport::ServerCall& call, Request* request) const;
  // Parses, and puts the core's number of the namespace in place of the connection's.
  template <typename Request>
  bool ParseBound(transport::ServerCall& call, Request* request) const;
  template <typename BatchCall, typename Request, typename Reply>
  void Batch(Call call, transport::FrameType answer, bool dispatch, std::string_view decided);
  MonoTime Deadline(const transport::ServerCall& call, uint32_t deadline_ms) const;

  void OnOpenNamespace(Call call);
  void AnswerWhenDurable(Call call, wire::OpenNamespaceReply reply);
  void OnBindNamespace(Call call);
  void OnGetMaps(Call call);
  void OnRelease(Call call);
  void OnRemove(Call call);
  void OnPing(Call call);

  const Options options_;
  CoreDriver& driver_;
  RocksStateStore& state_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_FRAME_SERVICE_H_
