// A worker's process: gets a chunk by the ticket that another process made.
//   ticket_reader MASTER TOKEN_FILE TICKET_FILE KEY SEED BYTES
// Exits with 0 when the bytes are the pattern of SEED, and nothing had to be asked twice.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "base/test_util.h"
#include "client/client.h"

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  auto client = cistern::Client::Connect({.master_address = argv[1], .pool_token_file = argv[2]});
  if (!client.ok()) return 3;
  auto ns = (*client)->OpenNamespace("test", "v1");
  if (!ns.ok()) return 4;
  std::ifstream file(argv[3], std::ios::binary);
  const std::string ticket(std::istreambuf_iterator<char>(file), {});
  const auto found = (*ns)->Adopt(ticket);
  if (!found.ok() || found->leading_run != 1) return 5;
  const auto bytes = static_cast<uint64_t>(std::atoll(argv[6]));
  auto buffer = (*client)->AllocateBuffer(bytes);
  if (!buffer.ok()) return 6;
  const cistern::Span span{buffer->data(), bytes};
  const cistern::GetItem item{.id = *(*ns)->Hash(argv[4]), .memory = {.spans = {&span, 1}}};
  const auto got = (*ns)->BatchGet({&item, 1});
  if (got.items[0].code != cistern::ChunkCode::kOk || !got.items[0].verified) return 7;
  const auto seed = static_cast<uint64_t>(std::atoll(argv[5]));
  const std::string_view text(static_cast<const char*>(buffer->data()), bytes);
  if (text != cistern::PatternBytes(seed, bytes)) return 8;
  return (*client)->stats().retries == 0 ? 0 : 9;
}
