// Every call of the library ends soon after its deadline while the master or the stores are
// stopped, killed, or swallow what is sent to them.
#include <functional>
#include <iostream>
#include <thread>

#include "tests/integration/trouble/trouble_fixture.h"

namespace cistern {
namespace {

constexpr absl::Duration kDeadline = absl::Milliseconds(250);
// What the library promises beyond the deadline; 0 and this for a cancel.
constexpr absl::Duration kPromise = absl::Milliseconds(150);
constexpr uint64_t kBytes = 300'000;

class DeadlineTest : public TroubleFixture {
 protected:
  void SetUp() override {
    StartTroublePool();
    if (HasFatalFailure()) return;
    for (int i = 0; i < 4; ++i) {
      PutOptions options = Visible();
      options.affinity = static_cast<uint64_t>(i) << 60;
      ASSERT_EQ(Put(Key(i), static_cast<uint64_t>(i), kBytes, options), ChunkCode::kOk) << message_;
      ids_.push_back(Id(Key(i)));
    }
    ASSERT_OK_AND_ASSIGN(const LookupResult found, ns_->Lookup(ids_));
    leases_.assign(3, found.leases.at(0));
    for (int i = 0; i < 4; ++i) {
      const auto offset = static_cast<uint64_t>(i) << 20;
      spans_.push_back({At(kBufferBytes / 2 + offset), kBytes});
      gets_.push_back({.id = ids_[static_cast<size_t>(i)], .memory = {}});
      put_spans_.push_back({At(offset), kBytes});
    }
    for (size_t i = 0; i < 4; ++i) gets_[i].memory.spans = {&spans_[i], 1};
    ASSERT_OK_AND_ASSIGN(empty_ns_, client_->OpenNamespace("empty", "v1"));
    ASSERT_OK_AND_ASSIGN(spare_client_, Client::Connect(ConnectOptions()));
    ASSERT_OK_AND_ASSIGN(spare_ns_, spare_client_->OpenNamespace("test", "v1"));
    ASSERT_OK_AND_ASSIGN(spare_buffer_, spare_client_->AllocateBuffer(kBytes));
    spare_span_ = {spare_buffer_.data(), kBytes};
    ASSERT_OK(spare_ns_->Lookup(ids_));
  }
  void TearDown() override {
    spare_buffer_ = Buffer();
    spare_ns_.reset();
    spare_client_.reset();
    empty_ns_.reset();
    TroubleFixture::TearDown();
  }
  static std::string Key(int i) { return "chunk " + std::to_string(i); }

  // Fresh chunks each time: those that are there cost no bytes.
  std::vector<PutItem> NewPuts() {
    std::vector<PutItem> puts;
    for (size_t i = 0; i < 4; ++i) {
      const std::string key = "new " + std::to_string(next_key_++);
      puts.push_back({.id = Id(key), .memory = {.spans = {&put_spans_[i], 1}}});
    }
    return puts;
  }

  // Runs one call; it must end within `allowed` and the promise.
  void Time(const std::string& name, absl::Duration allowed, const std::function<void()>& call) {
    lateness_.Take();
    const MonoTime start = Clock::Real().Mono();
    call();
    const absl::Duration over = Clock::Real().Mono() - start - allowed;
    const absl::Duration late = lateness_.Take();
    if (over > worst_) {
      worst_ = over;
      worst_name_ = name;
    }
    // Each of the few hand-overs from one thread to another may be as late as the worst seen.
    EXPECT_LE(over, kPromise + absl::Milliseconds(20) + 6 * late)
        << name << ": the host was late by " << late;
  }

  template <typename Options = CallOptions>
  static Options Within() {
    Options options;
    options.deadline = kDeadline;
    return options;
  }

  void EveryCall(const std::string& trouble) {
    SCOPED_TRACE(trouble);
    worst_ = -absl::InfiniteDuration();
    Time("Ping", kDeadline, [&] { (void)client_->Ping(Within()); });
    Time("OpenNamespace", kDeadline,
         [&] { (void)client_->OpenNamespace("other", "v1", {}, Within()); });
    Time("Lookup", kDeadline, [&] { (void)ns_->Lookup(ids_, Within<LookupOptions>()); });
    Time("Exists", kDeadline, [&] { (void)ns_->Exists(ids_, Within<LookupOptions>()); });
    Time("Prefetch", kDeadline, [&] { (void)ns_->Prefetch(ids_, Within<LookupOptions>()); });
    Time("Release", kDeadline, [&] { (void)ns_->Release(leases_, Within()); });
    Time("BatchGet", kDeadline, [&] { ExpectGot(ns_->BatchGet(gets_, Within<GetOptions>())); });
    Time("BatchPut", kDeadline, [&] {
      const std::vector<PutItem> puts = NewPuts();
      (void)ns_->BatchPut(puts, Within<PutOptions>());
    });
    Time("BatchPut, visible", kDeadline, [&] {
      const std::vector<PutItem> puts = NewPuts();
      PutOptions options = Within<PutOptions>();
      options.wait_visible = true;
      (void)ns_->BatchPut(puts, options);
    });
    Time("Remove", kDeadline, [&] { (void)ns_->Remove({&ids_[3], 1}, Within<RemoveOptions>()); });
    Time("RemoveAll", kDeadline, [&] { (void)empty_ns_->RemoveAll(Within<RemoveOptions>()); });
    Time("LookupAsync", kDeadline,
         [&] { (void)ns_->LookupAsync(ids_, Within<LookupOptions>()).Take(); });
    Time("BatchGetAsync", kDeadline,
         [&] { ExpectGot(ns_->BatchGetAsync(gets_, Within<GetOptions>()).Take()); });
    Time("BatchPutAsync", kDeadline, [&] {
      const std::vector<PutItem> puts = NewPuts();
      (void)ns_->BatchPutAsync(puts, Within<PutOptions>()).Take();
    });
    Time("BatchGetAsync, nobody waiting", kDeadline, [&] {
      auto pending = ns_->BatchGetAsync(gets_, Within<GetOptions>());
      while (!pending.Done()) Clock::Real().SleepFor(absl::Milliseconds(1));
    });
    Time("Pending dropped", absl::ZeroDuration(), [&] {
      const std::vector<PutItem> puts = NewPuts();
      const auto get = ns_->BatchGetAsync(gets_);
      const auto put = ns_->BatchPutAsync(puts);
      const auto lookup = ns_->LookupAsync(ids_);
    });
    Time("Buffer dropped", kDeadline, [&] {
      std::vector<char> memory(kBytes);
      auto buffer = client_->RegisterBuffer({.data = memory.data(), .bytes = memory.size()});
      ASSERT_OK(buffer);
      const Span span{memory.data(), memory.size()};
      const GetItem item{.id = ids_[0], .memory = {.spans = {&span, 1}}};
      auto pending = ns_->BatchGetAsync({&item, 1}, Within<GetOptions>());
      *buffer = Buffer();
    });
    Time("Connect", kDeadline, [&] {
      ClientOptions options = ConnectOptions();
      options.deadline = kDeadline;
      (void)Client::Connect(options);
    });
    Time("Client dropped with calls pending", absl::ZeroDuration(), [&] {
      const PutItem item{.id = Id("of the spare"), .memory = {.spans = {&spare_span_, 1}}};
      const GetItem wanted{.id = ids_[0], .memory = {.spans = {&spare_span_, 1}}};
      const auto get = spare_ns_->BatchGetAsync({&wanted, 1});
      const auto put = spare_ns_->BatchPutAsync({&item, 1});
      const auto lookup = spare_ns_->LookupAsync(ids_);
      spare_client_.reset();
      EXPECT_TRUE(get.Done() && put.Done() && lookup.Done());
    });
    std::cout << "  " << trouble << ": the latest of all calls ended "
              << absl::FormatDuration(worst_) << " after its deadline (" << worst_name_ << ")\n";
  }

  // Whatever comes is right.
  void ExpectGot(const BatchResult& result) {
    for (size_t i = 0; i < result.items.size(); ++i) {
      if (result.items[i].code != ChunkCode::kOk) continue;
      EXPECT_TRUE(std::string_view(static_cast<char*>(spans_[i].data), kBytes) ==
                  PatternBytes(i, kBytes));
    }
  }

  Lateness lateness_;
  std::vector<KeyId> ids_;
  std::vector<LeaseId> leases_;
  std::vector<Span> spans_;
  std::vector<Span> put_spans_;
  std::vector<GetItem> gets_;
  std::shared_ptr<Namespace> empty_ns_;
  std::unique_ptr<Client> spare_client_;
  std::shared_ptr<Namespace> spare_ns_;
  Buffer spare_buffer_;
  Span spare_span_;
  int next_key_ = 0;
  absl::Duration worst_;
  std::string worst_name_;
};

TEST_F(DeadlineTest, MasterStopped) {
  Halt(kMaster);
  EveryCall("master stopped");
  Continue(kMaster);
  EXPECT_TRUE(Eventually([&] { return ns_->Lookup(ids_).ok(); }));
}

TEST_F(DeadlineTest, MasterKilled) {
  Kill(kMaster);
  EveryCall("master killed");
}

TEST_F(DeadlineTest, MasterSwallowsWhatIsSent) {
  Kill(kMaster);
  const BlackHole hole(ports(kMaster).data);
  EveryCall("master unreachable");
}

TEST_F(DeadlineTest, StoresStopped) {
  for (const int store : {Store(0), Store(1)}) Halt(store);
  EveryCall("stores stopped");
  for (const int store : {Store(0), Store(1)}) Continue(store);
  EXPECT_TRUE(Eventually([&] { return Get(Key(0), kBytes) == ChunkCode::kOk; })) << message_;
  EXPECT_TRUE(Brought(0, kBytes));
}

TEST_F(DeadlineTest, StoresKilled) {
  for (const int store : {Store(0), Store(1)}) Kill(store);
  EveryCall("stores killed");
}

TEST_F(DeadlineTest, StoresSwallowWhatIsSent) {
  for (const int store : {Store(0), Store(1)}) Kill(store);
  const BlackHole first(ports(Store(0)).data);
  const BlackHole second(ports(Store(1)).data);
  EveryCall("stores unreachable");
}

TEST_F(DeadlineTest, EverythingStopped) {
  for (const int daemon : {kMaster, Store(0), Store(1)}) Halt(daemon);
  EveryCall("everything stopped");
}

}  // namespace
}  // namespace cistern
