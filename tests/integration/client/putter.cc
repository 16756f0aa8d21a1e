// A process that puts chunks until it is killed.
//   putter MASTER TOKEN_FILE BYTES [rdma]
// Puts "dying 0", "dying 1", ... of BYTES each into the namespace "test".
#include <cstdlib>
#include <string>

#include "base/test_util.h"
#include "client/client.h"

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  cistern::ClientOptions options;
  options.master_address = argv[1];
  options.pool_token_file = argv[2];
  if (argc == 5) options.wire = cistern::Wire::kRdma;
  auto client = cistern::Client::Connect(options);
  if (!client.ok()) return 3;
  auto ns = (*client)->OpenNamespace("test", "v1");
  const auto bytes = static_cast<uint64_t>(std::atoll(argv[3]));
  auto buffer = (*client)->AllocateBuffer(bytes);
  if (!ns.ok() || !buffer.ok()) return 4;
  for (int i = 0;; ++i) {
    cistern::FillPattern(static_cast<uint64_t>(i), buffer->data(), bytes);
    const cistern::Span span{buffer->data(), bytes};
    const cistern::PutItem item{.id = *(*ns)->Hash("dying " + std::to_string(i)),
                                .memory = {.spans = {&span, 1}}};
    (void)(*ns)->BatchPut({&item, 1});
  }
}
