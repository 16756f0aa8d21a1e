// Puts one chunk into a pool and gets it back:
//
//   g++ -std=c++20 put_get.cc $(pkg-config --cflags --libs cistern) -o put_get
//   ./put_get 127.0.0.1:7600 [TOKEN_FILE]
#include <cistern/client.h>

#include <cstdio>
#include <cstring>

int Fail(const char* what, std::string_view why) {
  std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(why.size()), why.data());
  return 1;
}

int main(int argc, char** argv) {
  cistern::ClientOptions options;
  if (argc > 1) options.master_address = argv[1];
  if (argc > 2) options.pool_token_file = argv[2];
  auto client = cistern::Client::Connect(options);
  if (!client.ok()) return Fail("connect", client.status().ToString());

  // The fingerprint: everything that makes KV bytes interchangeable. Chunks of another never mix.
  auto ns = (*client)->OpenNamespace("example", "model=demo;dtype=bf16;block=16");
  if (!ns.ok()) return Fail("namespace", ns.status().ToString());

  // Chunks are put from, and got into, registered memory: here, memory of the library's own.
  constexpr size_t kChunkBytes = 256 << 10;
  auto buffer = (*client)->AllocateBuffer(2 * kChunkBytes);
  if (!buffer.ok()) return Fail("buffer", buffer.status().ToString());
  char* const source = static_cast<char*>(buffer->data());
  char* const target = source + kChunkBytes;
  for (size_t i = 0; i < kChunkBytes; ++i) source[i] = static_cast<char>(i * 31);

  // A key is any bytes that tell the content: for a prompt's blocks, a hash of its tokens so far.
  const auto id = (*ns)->Hash("prompt 1, block 0");
  if (!id.ok()) return Fail("key", id.status().ToString());
  const cistern::Span from{source, kChunkBytes};
  const cistern::PutItem put{.id = *id, .memory = {.spans = {&from, 1}}};
  const cistern::BatchResult stored = (*ns)->BatchPut({&put, 1});
  std::printf("put: %s\n", std::string(cistern::ChunkCodeName(stored.items[0].code)).c_str());

  // The same key later, in this process or another: how many of my blocks are there?
  const auto found = (*ns)->Lookup({&*id, 1});
  if (!found.ok()) return Fail("lookup", found.status().ToString());
  std::printf("lookup: a leading run of %u\n", found->leading_run);

  const cistern::Span into{target, kChunkBytes};
  const cistern::GetItem get{.id = *id, .memory = {.spans = {&into, 1}}};
  const cistern::BatchResult got = (*ns)->BatchGet({&get, 1});
  if (got.items[0].code != cistern::ChunkCode::kOk) return Fail("get", got.message);
  const bool same = std::memcmp(source, target, kChunkBytes) == 0;
  std::printf("get: %s, verified: %s\n", same ? "the same bytes" : "OTHER BYTES",
              got.items[0].verified ? "yes" : "no");
  return same ? 0 : 1;
}
