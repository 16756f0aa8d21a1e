// A client process that puts, looks up and gets, and can be made to fail at a named point.
//   worker MASTER TOKEN_FILE NAME ROUNDS [FAULT]...
// Each round puts a small and a large chunk, looks both up under a lease, gets them, and checks
// what came. Ends with 0, or 10 when bytes were wrong. Calls that fail are no error.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "base/fault.h"
#include "base/test_util.h"
#include "client/client.h"

namespace {

constexpr uint64_t kSizes[] = {50'000, 3'000'000};
constexpr uint64_t kLargest = 3'000'000;

}  // namespace

int main(int argc, char** argv) {
  using namespace cistern;  // NOLINT: a program of one file
  if (argc < 5) return 2;
  ClientOptions connect;
  connect.master_address = argv[1];
  connect.pool_token_file = argv[2];
  connect.deadline = absl::Seconds(5);
  const std::string name = argv[3];
  const int rounds = std::atoi(argv[4]);
  auto client = Client::Connect(connect);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 3;
  }
  auto ns = (*client)->OpenNamespace("test", "v1");
  auto buffer = (*client)->AllocateBuffer(2 * kLargest);
  if (!ns.ok() || !buffer.ok()) return 4;
  char* const out = static_cast<char*>(buffer->data());
  char* const in = out + kLargest;
  for (int i = 5; i < argc; ++i) {
    if (!ArmFault(argv[i]).ok()) return 2;
  }
  for (int round = 0; round < rounds; ++round) {
    for (const uint64_t bytes : kSizes) {
      const auto seed = static_cast<uint64_t>(round) * 7 + bytes;
      const KeyId id =
          *(*ns)->Hash(name + " " + std::to_string(round) + " " + std::to_string(bytes));
      FillPattern(seed, out, bytes);
      const Span from{out, bytes};
      const PutItem put{.id = id, .memory = {.spans = {&from, 1}}};
      PutOptions visible;
      visible.wait_visible = true;
      (void)(*ns)->BatchPut({&put, 1}, visible);
      LookupOptions lease;
      lease.lease_time = absl::Seconds(1);
      (void)(*ns)->Lookup({&id, 1}, lease);
      std::memset(in, 0, bytes);
      const Span into{in, bytes};
      const GetItem get{.id = id, .memory = {.spans = {&into, 1}}};
      const BatchResult got = (*ns)->BatchGet({&get, 1});
      if (got.items[0].code == ChunkCode::kOk &&
          std::string_view(in, bytes) != PatternBytes(seed, bytes)) {
        return 10;
      }
    }
  }
  return 0;
}
