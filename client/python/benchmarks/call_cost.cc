// What calls cost through the C++ interface: the same as call_cost.py, and in its form.
//
//   call_cost MASTER TOKEN_FILE [ROUNDS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "client/client.h"

namespace cistern {
namespace {

constexpr uint64_t kChunkBytes = 4096;

// Prints the 10th percentile of `rounds` runs in microseconds.
void Measure(const char* name, size_t keys, int rounds, const std::function<void()>& run) {
  std::vector<double> us;
  for (int i = 0; i < rounds + rounds / 10; ++i) {
    const MonoTime start = Clock::Real().Mono();
    run();
    if (i >= rounds / 10) us.push_back(absl::ToDoubleMicroseconds(Clock::Real().Mono() - start));
  }
  std::nth_element(us.begin(), us.begin() + us.size() / 10, us.end());
  std::printf("%s %zu %.2f\n", name, keys, us[us.size() / 10]);
}

absl::Status Run(const std::string& master, const std::string& token, int rounds) {
  auto client = Client::Connect({.master_address = master, .pool_token_file = token});
  if (!client.ok()) return client.status();
  auto ns = (*client)->OpenNamespace("call_cost_cxx", "v1");
  if (!ns.ok()) return ns.status();
  for (const size_t count : {size_t{1}, size_t{32}, size_t{1024}}) {
    auto buffer = (*client)->AllocateBuffer(count * kChunkBytes);
    if (!buffer.ok()) return buffer.status();
    const int times = count == 1024 ? std::max(rounds / 8, 20) : rounds;
    std::vector<std::string> texts;
    std::vector<std::string_view> keys;
    for (size_t i = 0; i < count; ++i) {
      texts.push_back(std::to_string(count) + ":" + std::to_string(i) + std::string(48, 'k'));
    }
    for (const std::string& text : texts) keys.push_back(text);
    std::vector<KeyId> ids;
    Measure("hash", count, times, [&] { (void)(*ns)->HashMany(keys, &ids); });
    std::vector<Span> spans;
    for (size_t i = 0; i < count; ++i) {
      spans.push_back({static_cast<char*>(buffer->data()) + i * kChunkBytes, kChunkBytes});
    }
    const auto put_items = [&] {
      std::vector<PutItem> items(count);
      for (size_t i = 0; i < count; ++i)
        items[i] = {.id = ids[i], .memory = {.spans = {&spans[i], 1}}};
      return items;
    };
    PutOptions visible;
    visible.wait_visible = true;
    const BatchResult put = (*ns)->BatchPut(put_items(), visible);
    if (put.CountOf(ChunkCode::kOk) != count) return absl::InternalError(put.message);
    Measure("put_present", count, times, [&] { (void)(*ns)->BatchPut(put_items()); });
    Measure("lookup", count, times, [&] {
      const auto found = (*ns)->Lookup(ids);
      if (!found.ok() || found->leading_run != count) std::abort();
      (void)(*ns)->Release(found->leases);
    });
    Measure("exists", count, times, [&] {
      if (!(*ns)->Exists(ids).ok()) std::abort();
    });
    Measure("get", count, times, [&] {
      std::vector<GetItem> items(count);
      for (size_t i = 0; i < count; ++i)
        items[i] = {.id = ids[i], .memory = {.spans = {&spans[i], 1}}};
      if ((*ns)->BatchGet(items).CountOf(ChunkCode::kOk) != count) std::abort();
    });
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const absl::Status status = cistern::Run(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 400);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
