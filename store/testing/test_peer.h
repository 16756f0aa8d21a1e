// A client of one store for tests: puts and gets over a real connection, with nothing hidden.
#ifndef CISTERN_STORE_TESTING_TEST_PEER_H_
#define CISTERN_STORE_TESTING_TEST_PEER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "proto/data.pb.h"
#include "transport/channel.h"
#include "transport/io_context.h"

namespace cistern::store {

// Frames of an answer, as they came.
struct AnswerFrames {
  absl::Status status;
  std::vector<transport::FrameType> types;
  std::vector<std::string> metas;
  std::string payload;  // of all frames
};

struct TestChunk {
  KeyId id;
  uint16_t shard = 0;
  std::string bytes;
};

// Used by one thread.
class TestPeer {
 public:
  TestPeer(uint16_t port, const std::string& token);
  ~TestPeer();

  // The ref on this connection.
  absl::StatusOr<uint32_t> Bind(const std::string& name, const std::string& fingerprint,
                                const wire::NamespaceOptions& options = {});
  // One request, whole answer. With `after_ready` that payload is sent when PutReady comes.
  AnswerFrames Call(transport::FrameType type, const std::string& meta, std::string payload = {},
                    std::string after_ready = {}, absl::Duration deadline = absl::Seconds(20));
  // Puts in line (or after Ready), with right digests unless `wrong_digest`.
  wire::PutDone Put(uint32_t ns_ref, const std::vector<TestChunk>& chunks, bool in_line = true,
                    bool wrong_digest = false);
  struct Got {
    wire::GetHead head;
    std::string payload;
    absl::Status status;
  };
  Got Get(uint32_t ns_ref, const std::vector<TestChunk>& like);

  wire::PutRequest PutMeta(uint32_t ns_ref, const std::vector<TestChunk>& chunks, bool in_line);
  // Bytes and part digests of one chunk as they travel.
  static std::string Stream(const TestChunk& chunk, bool wrong_digest = false);

  transport::Channel& channel() { return *channel_; }
  transport::IoContext& io() { return *io_; }

 private:
  std::unique_ptr<transport::IoContext> io_;
  std::unique_ptr<transport::Channel> channel_;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_TESTING_TEST_PEER_H_
