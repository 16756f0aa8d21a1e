/* Puts one chunk into a pool and gets it back:
 *
 *   gcc -std=c11 put_get.c $(pkg-config --cflags --libs cistern) -o put_get
 *   ./put_get 127.0.0.1:7600 [TOKEN_FILE]
 */
#include <cistern/cistern.h>
#include <stdio.h>
#include <string.h>

static int fail(const char* what, cistern_code code) {
  fprintf(stderr, "%s: %s: %s\n", what, cistern_code_name(code), cistern_last_message());
  return 1;
}

int main(int argc, char** argv) {
  const cistern_client_options options = {.struct_size = sizeof options,
                                          .master_address = argc > 1 ? argv[1] : NULL,
                                          .pool_token_file = argc > 2 ? argv[2] : NULL};
  cistern_client client;
  cistern_code code = cistern_connect(&options, &client);
  if (code != CISTERN_OK) return fail("connect", code);

  /* The fingerprint: everything that makes KV bytes interchangeable. Others' chunks never mix. */
  cistern_namespace ns;
  code = cistern_open_namespace(client, "example", "model=demo;dtype=bf16;block=16", NULL, NULL, &ns);
  if (code != CISTERN_OK) return fail("namespace", code);

  /* Chunks are put from, and got into, registered memory: here, memory of the library's own. */
  enum { kChunkBytes = 256 << 10 };
  cistern_buffer buffer;
  void* memory;
  code = cistern_allocate_buffer(client, 2 * kChunkBytes, &buffer, &memory);
  if (code != CISTERN_OK) return fail("buffer", code);
  unsigned char* const source = memory;
  unsigned char* const target = source + kChunkBytes;
  for (int i = 0; i < kChunkBytes; ++i) source[i] = (unsigned char)(i * 31);

  /* A key is any bytes that tell the content: for a prompt's blocks, a hash of its tokens so far. */
  const char key[] = "prompt 1, block 0";
  const uint64_t key_bytes = sizeof key - 1;
  cistern_id id;
  code = cistern_hash(ns, key, &key_bytes, 1, &id);
  if (code != CISTERN_OK) return fail("key", code);

  const cistern_span from = {source, kChunkBytes};
  const cistern_put_item put = {
      .struct_size = sizeof put, .id = id, .spans = &from, .span_count = 1};
  cistern_chunk_result result;
  code = cistern_put(ns, &put, 1, NULL, &result);
  if (code != CISTERN_OK) return fail("put", code);
  printf("put: %s\n", cistern_code_name(result.code));

  /* The same key later, in this process or another: how many of my blocks are there? */
  cistern_lookup_info found = {.struct_size = sizeof found};
  code = cistern_lookup_keys(ns, &id, 1, NULL, &found, NULL, NULL);
  if (code != CISTERN_OK) return fail("lookup", code);
  printf("lookup: a leading run of %d\n", (int)found.leading_run);

  const cistern_span into = {target, kChunkBytes};
  const cistern_get_item get = {
      .struct_size = sizeof get, .id = id, .spans = &into, .span_count = 1};
  code = cistern_get(ns, &get, 1, NULL, &result);
  if (code != CISTERN_OK || result.code != CISTERN_OK) return fail("get", result.code);
  const int same = memcmp(source, target, kChunkBytes) == 0;
  printf("get: %s, verified: %s\n", same ? "the same bytes" : "OTHER BYTES",
         result.flags & CISTERN_RESULT_VERIFIED ? "yes" : "no");

  cistern_namespace_free(ns);
  cistern_buffer_free(buffer);
  cistern_close(client);
  return same ? 0 : 1;
}
