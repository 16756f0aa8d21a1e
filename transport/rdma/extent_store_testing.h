// A server of one extent of registered memory, as a store is: for tests.
#ifndef CISTERN_TRANSPORT_RDMA_EXTENT_STORE_TESTING_H_
#define CISTERN_TRANSPORT_RDMA_EXTENT_STORE_TESTING_H_

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "transport/rdma/host.h"
#include "transport/server.h"

namespace cistern::transport::rdma {

// Pages of their own, registered with a host or not.
class TestMemory {
 public:
  explicit TestMemory(size_t bytes) : bytes_(bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CISTERN_CHECK(data != MAP_FAILED);
    data_ = static_cast<uint8_t*>(data);
  }
  ~TestMemory() {
    if (host_ != nullptr) host_->RemoveMemory(data_, bytes_);
    munmap(data_, bytes_);
  }
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;

  absl::Status Register(std::shared_ptr<Host> host, MemoryRights rights) {
    CISTERN_RETURN_IF_ERROR(host->AddMemory(data_, bytes_, rights));
    host_ = std::move(host);
    return absl::OkStatus();
  }
  // On the device whose connections start at `address`.
  MemoryKeys keys(const std::string& address) const {
    MemoryKeys keys;
    for (const auto& device : host_->devices()) {
      const auto& own = device->addresses;
      if (std::find(own.begin(), own.end(), address) == own.end()) continue;
      CISTERN_CHECK(device->memory.Find(data_, MemoryRights::kLocal, &keys));
    }
    return keys;
  }
  uint8_t* data() const { return data_; }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(data_); }
  size_t size() const { return bytes_; }
  void Fill(char c) { std::memset(data_, c, bytes_); }
  bool Is(char c) const {
    return std::all_of(data_, data_ + bytes_, [c](uint8_t b) { return static_cast<char>(b) == c; });
  }

 private:
  const size_t bytes_;
  uint8_t* data_ = nullptr;
  std::shared_ptr<Host> host_;
};

// Gives some memory as it is.
class MemorySource final : public PayloadSource {
 public:
  MemorySource(uint8_t* data, uint64_t bytes) : data_(data), left_(bytes) {}
  uint64_t remaining() const override { return left_; }
  void NextPieces(size_t max_bytes, size_t, std::vector<iovec>* out) override {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(max_bytes, left_));
    out->push_back({data_, n});
    data_ += n;
    left_ -= n;
  }

 private:
  uint8_t* data_;
  uint64_t left_;
};

// Fills some memory.
class MemorySink final : public PayloadSink {
 public:
  MemorySink(uint8_t* data, uint64_t bytes) : data_(data), left_(bytes) {}
  void NextBuffers(size_t max_bytes, size_t, std::vector<iovec>* out) override {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(max_bytes, left_));
    if (n > 0) out->push_back({data_, n});
  }
  absl::Status Landed(size_t bytes) override {
    data_ += bytes;
    left_ -= bytes;
    return absl::OkStatus();
  }

 private:
  uint8_t* data_;
  uint64_t left_;
};

// "echo TEXT"; "get N": the extent's first N bytes; "put N": N bytes into the extent; "pause N":
// has N bytes come and never takes them.
class ExtentStore final : public RequestHandler {
 public:
  explicit ExtentStore(TestMemory* extent) : extent_(*extent) {}

  void OnRequest(std::unique_ptr<ServerCall> call) override {
    const std::vector<std::string> words = absl::StrSplit(std::string(call->meta()), ' ');
    uint64_t bytes = 0;
    if (words.size() > 1 && words[0] != "echo") {
      CISTERN_CHECK(absl::SimpleAtoi(words[1], &bytes) && bytes <= extent_.size());
    }
    std::shared_ptr<ServerCall> shared = std::move(call);
    if (words[0] == "echo") return shared->Reply(FrameType::kPong, words[1], true);
    if (words[0] == "get") {
      shared->Reply(FrameType::kGetHead, "", false,
                    std::make_unique<MemorySource>(extent_.data(), bytes),
                    [shared](absl::Status) { shared->Reply(FrameType::kGetDone, "", true); });
      return;
    }
    if (words[0] == "put") {
      auto sink = std::make_shared<MemorySink>(extent_.data(), bytes);
      shared->ReceivePayload(bytes, sink.get(), [this, shared, sink](absl::Status status) {
        (status.ok() ? received : not_received).fetch_add(1);
        if (status.ok()) shared->Reply(FrameType::kPutDone, "", true);
      });
      return;
    }
    paused_.push_back(std::move(shared));  // one loop thread
  }

  std::atomic<int> received{0};
  std::atomic<int> not_received{0};

 private:
  TestMemory& extent_;
  std::vector<std::shared_ptr<ServerCall>> paused_;
};

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_EXTENT_STORE_TESTING_H_
