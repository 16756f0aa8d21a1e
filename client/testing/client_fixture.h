// A client of a fake pool, and one-line puts and gets.
#ifndef CISTERN_CLIENT_TESTING_CLIENT_FIXTURE_H_
#define CISTERN_CLIENT_TESTING_CLIENT_FIXTURE_H_

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "client/client.h"
#include "client/testing/fake_pool.h"

namespace cistern {

class ClientFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kBufferBytes = 64 << 20;

  explicit ClientFixture(int stores = 2) : pool_(stores) {}

  void SetUp() override { Connect(pool_.options()); }

  void Connect(const ClientOptions& options) {
    ASSERT_OK_AND_ASSIGN(client_, Client::Connect(options));
    ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("test", "v1"));
    ASSERT_OK_AND_ASSIGN(buffer_, client_->AllocateBuffer(kBufferBytes));
  }

  KeyId Id(std::string_view key) const { return *ns_->Hash(key); }
  ChunkName Name(std::string_view key, uint16_t shard = 0) const { return {Id(key), Shard(shard)}; }

  // The next `bytes` of the buffer, for the caller's use.
  Span Take(uint64_t bytes) {
    const Span span{static_cast<char*>(buffer_.data()) + used_, bytes};
    used_ += RoundUp(bytes, 64);
    EXPECT_LE(used_, kBufferBytes);
    return span;
  }
  // Room for one chunk, its span kept for the call.
  Memory Room(uint64_t bytes) {
    spans_.push_back(std::make_unique<Span>(Take(bytes)));
    return {.spans = {spans_.back().get(), 1}};
  }
  static std::string TextOf(const Memory& memory) {
    std::string out;
    for (const Span& span : memory.spans) out.append(static_cast<char*>(span.data), span.bytes);
    return out;
  }

  PutItem ItemToPut(std::string_view key, std::string_view bytes, uint16_t shard = 0) {
    PutItem item{.id = Id(key), .shard = shard, .memory = Room(bytes.size())};
    std::memcpy(item.memory.spans[0].data, bytes.data(), bytes.size());
    return item;
  }
  GetItem ItemToGet(std::string_view key, uint64_t bytes, uint16_t shard = 0) {
    return {.id = Id(key), .shard = shard, .memory = Room(bytes)};
  }
  ChunkCode Put(std::string_view key, std::string_view bytes, const PutOptions& options = {}) {
    const PutItem item = ItemToPut(key, bytes);
    const BatchResult result = ns_->BatchPut({&item, 1}, options);
    EXPECT_OK(result.status);
    last_message_ = result.message;
    return result.items.at(0).code;
  }
  // The code, and the bytes where it is kOk.
  std::pair<ChunkCode, std::string> Get(std::string_view key, uint64_t bytes,
                                        const GetOptions& options = {}) {
    const GetItem item = ItemToGet(key, bytes);
    const BatchResult result = ns_->BatchGet({&item, 1}, options);
    EXPECT_OK(result.status);
    last_message_ = result.message;
    last_ = result.items.at(0);
    if (last_.code != ChunkCode::kOk) return {last_.code, ""};
    return {last_.code, TextOf(item.memory)};
  }

  FakePool pool_;
  std::unique_ptr<Client> client_;
  std::shared_ptr<Namespace> ns_;
  Buffer buffer_;
  uint64_t used_ = 0;
  std::vector<std::unique_ptr<Span>> spans_;
  ChunkResult last_;
  std::string last_message_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_TESTING_CLIENT_FIXTURE_H_
