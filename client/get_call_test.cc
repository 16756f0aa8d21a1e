// A get by part over a network that delays, reorders, copies late and cuts: what is told to be in
// place is, from that moment on, whatever becomes of the call.
#include "client/get_call.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/eventually.h"
#include "base/test_util.h"
#include "client/part_progress.h"
#include "client/testing/fake_store.h"
#include "transport/fake/fake.h"

namespace cistern {
namespace {

constexpr uint64_t kPart = 4096;

// One call as an operation of its own.
class OneGet final : public Operation {
 public:
  OneGet(const OperationEnv& env, const OperationOptions& options, StoreTable::Link link,
         GetBatch batch, std::unique_ptr<GetObserver> observer)
      : Operation(env, options),
        link_(std::move(link)),
        batch_(std::move(batch)),
        observer_(std::move(observer)) {}
  absl::Status status;
  std::vector<GetOutcome> outcomes;

 private:
  void Begin() override {
    GetCall::Start(shared_from_this(), link_, std::move(batch_), std::move(observer_),
                   [this](const absl::Status& s, const std::vector<GetOutcome>& o) {
                     status = s;
                     outcomes = o;
                     Finish();
                   });
  }
  const StoreTable::Link link_;
  GetBatch batch_;
  std::unique_ptr<GetObserver> observer_;
};

// A chunk, its target of several spans, and how much of it was told to be in place.
struct Item {
  Item(uint8_t seed, uint64_t length) : bytes(PatternBytes(seed, length)), target(length, '\0') {
    name.id.bytes[0] = seed;
    for (uint64_t at = 0; at < length; at += 5'000) {
      spans.push_back({target.data() + at, std::min<uint64_t>(5'000, length - at)});
    }
  }
  Item(const Item&) = delete;
  uint64_t parts() const { return (bytes.size() + kPart - 1) / kPart; }
  bool InPlace(uint64_t parts) const {
    const uint64_t end = std::min<uint64_t>(parts * kPart, bytes.size());
    return target.compare(0, end, bytes, 0, end) == 0;
  }
  ChunkName name;
  std::string bytes;
  std::string target;
  std::vector<Span> spans;
  std::atomic<uint32_t> told{0};  // parts
  std::atomic<bool> bad{false};
  std::atomic<bool> missing{false};
};

class Watcher final : public GetObserver {
 public:
  explicit Watcher(const std::vector<std::unique_ptr<Item>>* items) : items_(*items) {}
  void OnMissing(absl::Span<const size_t> targets,
                 const std::vector<GetOutcome>& outcomes) override {
    for (const size_t t : targets) {
      items_[t]->missing = true;
      EXPECT_NE(outcomes[t].code, ChunkCode::kOk);
    }
  }
  void OnParts(size_t target, uint32_t parts) override {
    Item& item = *items_[target];
    if (parts == PendingGet::kAllParts) parts = static_cast<uint32_t>(item.parts());
    EXPECT_GE(parts, item.told);  // the front of a run is told of first
    EXPECT_FALSE(item.bad);
    item.told = parts;
    EXPECT_TRUE(item.InPlace(parts)) << target << " " << parts;
  }
  bool OnBad(size_t target, const GetOutcome&) override {
    items_[target]->bad = true;
    return false;
  }

 private:
  const std::vector<std::unique_ptr<Item>>& items_;
};

class GetCallTest : public ::testing::Test {
 protected:
  void Make(const transport::FakeNetwork::Options& options) {
    network_ = std::make_unique<transport::FakeNetwork>(options);
    transport::FakeNetwork::ServerOptions server;
    server.identity.kind = wire::PEER_STORE;
    server.identity.peer_id = std::string(store_.id().view());
    ASSERT_OK_AND_ASSIGN(server_, network_->Listen(server, &store_));
    transport::LocalIdentity identity;
    identity.kind = wire::PEER_CLIENT;
    channel_ = network_->Connect(io_.get(), {server_->port(), identity, server.identity.peer_id});
  }
  void TearDown() override {
    channel_.reset();
    if (server_ != nullptr) server_->Stop();
  }

  // Of 7, 1, 3 and 12 parts; the third is not in the store.
  void MakeItems() {
    items_.clear();
    for (const uint64_t length : {7 * kPart, kPart, 3 * kPart, 11 * kPart + 5}) {
      items_.push_back(std::make_unique<Item>(static_cast<uint8_t>(items_.size() + 1), length));
      if (items_.size() == 3) continue;
      store_.Add(items_.back()->name, {.bytes = items_.back()->bytes, .part_bytes = kPart});
    }
  }
  GetBatch Batch() const {
    GetBatch batch;
    batch.order = GetOrder::kByPart;
    for (const auto& item : items_) {
      GetTarget target;
      target.name = item->name;
      target.memory = MemoryRef(item->spans, item->bytes.size());
      batch.targets.push_back(target);
    }
    return batch;
  }
  std::shared_ptr<OneGet> Start(GetBatch batch) {
    OperationOptions options;
    options.deadline = Clock::Real().Mono() + absl::Seconds(30);
    options.async = true;
    auto get = std::make_shared<OneGet>(
        OperationEnv{io_.get(), &Clock::Real(), &budget_, &operations_}, options,
        StoreTable::Link{channel_, 1}, std::move(batch), std::make_unique<Watcher>(&items_));
    get->Launch();
    return get;
  }
  std::shared_ptr<OneGet> Run(GetBatch batch) {
    auto get = Start(std::move(batch));
    get->Wait();
    return get;
  }
  // items_ has one item, of which `outcome` says how much is in place.
  void GetBehindFront(const GetOutcome& outcome) {
    Item& item = *items_[0];
    ASSERT_EQ(outcome.front.parts, item.told);
    ASSERT_TRUE(item.InPlace(item.told));
    if (item.told == item.parts()) {
      EXPECT_EQ(outcome.code, ChunkCode::kOk);
      EXPECT_TRUE(outcome.verified);
      return;
    }
    EXPECT_EQ(outcome.code, ChunkCode::kUnavailable);
    GetBatch batch = Batch();
    const uint64_t front_bytes = item.told * kPart;
    if (item.told > 0) {
      EXPECT_TRUE(outcome.front_verified);
      batch.selection = {GetSelection::Kind::kParts, item.told, 0, false};
      batch.targets[0].front = outcome.front;
      batch.targets[0].memory_skip = front_bytes;
    }
    // Nothing may touch the front: the wire would bring these back to what they were.
    for (uint64_t at = 0; at < front_bytes; at += kPart) {
      item.target[at] = static_cast<char>(item.target[at] ^ 1);
      item.bytes[at] = static_cast<char>(item.bytes[at] ^ 1);
    }
    const auto get = Run(std::move(batch));
    EXPECT_EQ(get->outcomes[0].code, ChunkCode::kOk);
    EXPECT_TRUE(get->outcomes[0].verified);
    EXPECT_EQ(item.told, item.parts());
    EXPECT_EQ(item.target, item.bytes);
  }

  std::unique_ptr<transport::IoContext> io_ = *transport::IoContext::Create({});
  InflightBudget budget_{1 << 30};
  OperationSet operations_;
  FakeStore store_;
  std::unique_ptr<transport::FakeNetwork> network_;
  std::unique_ptr<transport::WireServer> server_;
  std::shared_ptr<transport::Channel> channel_;
  std::vector<std::unique_ptr<Item>> items_;
};

transport::FakeNetwork::Options Unruly(uint64_t seed) {
  transport::FakeNetwork::Options options;
  options.seed = seed;
  options.max_delay = absl::Microseconds(200);
  options.max_copy_delay = absl::Microseconds(200);
  options.payload_piece_bytes = 3'000;
  return options;
}

TEST_F(GetCallTest, PartsAreInPlaceWhenTheyAreTold) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Make(Unruly(seed));
    MakeItems();
    const auto get = Run(Batch());
    ASSERT_OK(get->status);
    for (const size_t i : {0, 1, 3}) {
      EXPECT_EQ(get->outcomes[i].code, ChunkCode::kOk);
      EXPECT_TRUE(get->outcomes[i].verified);
      EXPECT_EQ(items_[i]->told, items_[i]->parts());
      EXPECT_EQ(items_[i]->target, items_[i]->bytes);
    }
    EXPECT_TRUE(items_[2]->missing);
    EXPECT_TRUE(get->outcomes[2].told);
    EXPECT_EQ(get->outcomes[2].code, ChunkCode::kNotFound);
    TearDown();
  }
}

// The connection is cut when `sent` parts have been told of; then each chunk is got behind its
// front.
TEST_F(GetCallTest, WhatWasToldOutlivesACutAndTheRestIsGotBehindIt) {
  for (uint32_t sent = 0; sent < 20; ++sent) {  // of 7 + 1 + 12
    SCOPED_TRACE(sent);
    Make(Unruly(sent));
    MakeItems();
    items_.erase(items_.begin() + 2);
    store_.AllowPayload(20 * 8 + sent * kPart + 3);
    const auto get = Start(Batch());
    const auto told = [&] {
      uint32_t sum = 0;
      for (const auto& item : items_) sum += item->told;
      return sum;
    };
    ASSERT_TRUE(Eventually([&] { return store_.gets > 0 && told() >= sent; }));
    network_->CutConnections(server_->port());
    get->Wait();
    EXPECT_FALSE(get->status.ok());
    EXPECT_EQ(told(), sent);
    store_.AllowPayload(UINT64_MAX);
    std::vector<std::unique_ptr<Item>> all = std::move(items_);
    for (size_t i = 0; i < all.size(); ++i) {
      items_.clear();
      items_.push_back(std::move(all[i]));
      GetBehindFront(get->outcomes[i]);
    }
    store_.gets = 0;
    TearDown();
  }
}

TEST_F(GetCallTest, AnotherChunkBehindTheFrontIsRefused) {
  Make({});
  MakeItems();
  GetBatch batch = Batch();
  batch.targets.resize(1);
  Item& item = *items_[0];
  batch.selection = {GetSelection::Kind::kParts, 2, 0, false};
  batch.targets[0].memory_skip = 2 * kPart;
  batch.targets[0].front = {2, item.bytes.size(), kPart, /*root=*/12345};
  const auto get = Run(std::move(batch));
  EXPECT_EQ(get->outcomes[0].code, ChunkCode::kDataLoss);
  EXPECT_FALSE(get->outcomes[0].mismatch);  // nothing to report: the store's chunk is sound
  EXPECT_EQ(get->outcomes[0].front.parts, 0u);
  EXPECT_EQ(item.told, 0u);
}

TEST_F(GetCallTest, BadPartEndsItsChunksProgressOnly) {
  Make(Unruly(9));
  MakeItems();
  std::string rotten = items_[3]->bytes;
  rotten[5 * kPart + 1] ^= 1;
  store_.Add(items_[3]->name, {.bytes = rotten, .part_bytes = kPart, .digested = items_[3]->bytes});
  const auto get = Run(Batch());
  ASSERT_OK(get->status);
  EXPECT_EQ(get->outcomes[0].code, ChunkCode::kOk);
  EXPECT_EQ(items_[0]->told, 7u);
  EXPECT_TRUE(items_[3]->bad);
  EXPECT_EQ(items_[3]->told, 5u);
  EXPECT_EQ(get->outcomes[3].code, ChunkCode::kDataLoss);
  EXPECT_TRUE(get->outcomes[3].mismatch);
  EXPECT_EQ(get->outcomes[3].front.parts, 5u);
}

TEST_F(GetCallTest, StoreThatTakesBackWhatIsVerifiedIsNotBelieved) {
  Make({});
  MakeItems();
  store_.Add(items_[1]->name, {.bytes = items_[1]->bytes, .part_bytes = kPart, .digests = false});
  store_.set_get_fault(FakeStore::Fault::kTakenBack);
  const auto get = Run(Batch());
  EXPECT_EQ(get->outcomes[0].code, ChunkCode::kOk);
  EXPECT_TRUE(get->outcomes[0].verified);
  // Of what has no digests its word is all there is.
  EXPECT_EQ(get->outcomes[1].code, ChunkCode::kDataLoss);
}

}  // namespace
}  // namespace cistern
