/* A C program's view of a pool, compiled as a reader would against an install prefix:
 *
 *   c_abi_test MASTER TOKEN_FILE
 *
 * The pool holds nothing that is not ours. Prints "ok" at its end.
 */
#define _GNU_SOURCE 1

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { kChunk = 64 << 10, kChunks = 8, kParts = 16, kPart = kChunk / kParts };

static const char* g_master;
static const char* g_token;
static cistern_client g_client;
static cistern_namespace g_ns;
static cistern_buffer g_buffer;
static unsigned char* g_memory; /* kChunks to put from, as many to get into */

static unsigned char pattern(int chunk, int at) { return (unsigned char)(chunk * 17 + at * 31 + (at >> 8)); }
static unsigned char* source(int chunk) { return g_memory + chunk * kChunk; }
static unsigned char* target(int chunk) { return g_memory + (kChunks + chunk) * kChunk; }
static void wipe_targets(void) { memset(target(0), 0xEE, kChunks * kChunk); }
static int is_pattern(const unsigned char* p, int chunk, int from, int bytes) {
  for (int i = 0; i < bytes; ++i)
    if (p[i] != pattern(chunk, from + i)) return 0;
  return 1;
}

static cistern_id id_of(cistern_namespace ns, const char* key) {
  const uint64_t bytes = strlen(key);
  cistern_id id;
  EXPECT_OK(cistern_hash(ns, key, &bytes, 1, &id));
  return id;
}

static void make_ids(const char* prefix, int n, cistern_id* ids) {
  char text[64];
  for (int i = 0; i < n; ++i) {
    snprintf(text, sizeof text, "%s%d", prefix, i);
    ids[i] = id_of(g_ns, text);
  }
}

static void put_all(const cistern_id* ids, int n, cistern_chunk_result* results) {
  cistern_put_item items[kChunks];
  cistern_span spans[kChunks];
  memset(items, 0, sizeof items);
  for (int i = 0; i < n; ++i) {
    spans[i] = (cistern_span){source(i), kChunk};
    items[i].struct_size = sizeof items[i];
    items[i].id = ids[i];
    items[i].spans = &spans[i];
    items[i].span_count = 1;
  }
  const cistern_put_options options = {.struct_size = sizeof options,
                                       .flags = CISTERN_PUT_WAIT_VISIBLE, .part_bytes = kPart};
  EXPECT_OK(cistern_put(g_ns, items, (size_t)n, &options, results));
}

static void get_items(const cistern_id* ids, int n, cistern_get_item* items, cistern_span* spans) {
  memset(items, 0, sizeof *items * (size_t)n);
  for (int i = 0; i < n; ++i) {
    spans[i] = (cistern_span){target(i), kChunk};
    items[i].struct_size = sizeof items[i];
    items[i].id = ids[i];
    items[i].spans = &spans[i];
    items[i].span_count = 1;
  }
}

static void test_versions(void) {
  EXPECT(cistern_abi_version() == (CISTERN_ABI_MAJOR << 16 | CISTERN_ABI_MINOR));
  EXPECT(strlen(cistern_version()) >= 5);
  EXPECT(strcmp(cistern_code_name(CISTERN_NOT_FOUND), "not found") == 0);
  EXPECT(strcmp(cistern_code_name(CISTERN_PERMISSION_DENIED), "permission denied") == 0);
  EXPECT(strcmp(cistern_code_name(-1), "unknown") == 0);
  EXPECT(strcmp(cistern_code_name(1000), "unknown") == 0);
  EXPECT(strcmp(cistern_last_message(), "") == 0);
}

static void connect_pool(void) {
  const cistern_client_options options = {.struct_size = sizeof options, .master_address = g_master,
                                          .pool_token_file = g_token, .deadline_us = 20000000};
  EXPECT_OK(cistern_connect(&options, &g_client));
  EXPECT_OK(cistern_ping(g_client, NULL));
  cistern_id pool, zero = {{0}};
  EXPECT_OK(cistern_pool_id(g_client, &pool));
  EXPECT(memcmp(&pool, &zero, sizeof pool) != 0);
  EXPECT_OK(cistern_open_namespace(g_client, "c_abi", "v1", NULL, NULL, &g_ns));
  void* memory = NULL;
  EXPECT_OK(cistern_allocate_buffer(g_client, 2 * kChunks * kChunk, &g_buffer, &memory));
  g_memory = memory;
  for (int c = 0; c < kChunks; ++c)
    for (int i = 0; i < kChunk; ++i) source(c)[i] = pattern(c, i);
}

static void test_put_lookup_get(void) {
  cistern_id ids[kChunks];
  cistern_chunk_result results[kChunks];
  make_ids("basic", kChunks, ids);
  put_all(ids, 5, results);
  for (int i = 0; i < 5; ++i) EXPECT(results[i].code == CISTERN_OK);
  put_all(ids, 5, results);
  for (int i = 0; i < 5; ++i) EXPECT(results[i].code == CISTERN_PRESENT);

  /* Keys 0 to 4 are there, 5 to 7 not; asked for as 0 1 6 2. */
  const cistern_id asked[4] = {ids[0], ids[1], ids[6], ids[2]};
  cistern_lookup_info info = {.struct_size = sizeof info};
  uint8_t present[4];
  cistern_lookup lookup = {0};
  EXPECT_OK(cistern_lookup_keys(g_ns, asked, 4, NULL, &info, present, &lookup));
  EXPECT(info.key_count == 4 && info.leading_run == 2 && info.present_count == 3);
  EXPECT(info.lease_count == 1 && info.lease_us > 0 && info.lease_us <= 60000000);
  EXPECT(present[0] == 1 && present[1] == 1 && present[2] == 0 && present[3] == 1);
  cistern_lookup_info again = {.struct_size = sizeof again};
  uint8_t present_again[4];
  cistern_id ids_again[4];
  EXPECT_OK(cistern_lookup_get_info(lookup, &again));
  EXPECT(memcmp(&info, &again, sizeof info) == 0);
  EXPECT_OK(cistern_lookup_present(lookup, present_again, 4));
  EXPECT(memcmp(present, present_again, 4) == 0);
  EXPECT_OK(cistern_lookup_ids(lookup, ids_again, 4));
  EXPECT(memcmp(asked, ids_again, sizeof asked) == 0);
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_lookup_present(lookup, present_again, 3));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_lookup_ids(lookup, ids_again, 3));
  uint8_t exists[4];
  EXPECT_OK(cistern_exists(g_ns, asked, 4, NULL, exists));
  EXPECT(memcmp(present, exists, 4) == 0);
  EXPECT_OK(cistern_prefetch(g_ns, asked, 4, NULL));

  /* What is leased is not removed, until it is released. */
  EXPECT_OK(cistern_remove(g_ns, &ids[0], 1, NULL, results));
  EXPECT(results[0].code == CISTERN_FAILED_PRECONDITION);
  EXPECT_OK(cistern_release(lookup, NULL));
  EXPECT_OK(cistern_lookup_free(lookup));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_lookup_get_info(lookup, &info));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_lookup_free(lookup));

  wipe_targets();
  cistern_get_item items[kChunks];
  cistern_span spans[kChunks];
  get_items(ids, kChunks, items, spans);
  EXPECT_OK(cistern_get(g_ns, items, kChunks, NULL, results));
  for (int i = 0; i < 5; ++i) {
    EXPECT(results[i].code == CISTERN_OK && results[i].bytes == kChunk);
    EXPECT(results[i].flags == CISTERN_RESULT_VERIFIED);
    EXPECT(is_pattern(target(i), i, 0, kChunk));
  }
  for (int i = 5; i < kChunks; ++i) {
    EXPECT(results[i].code == CISTERN_NOT_FOUND && results[i].flags == 0);
    EXPECT(target(i)[0] == 0xEE && target(i)[kChunk - 1] == 0xEE);
  }

  EXPECT_OK(cistern_remove(g_ns, ids, 6, NULL, results));
  for (int i = 0; i < 5; ++i) EXPECT(results[i].code == CISTERN_OK);
  EXPECT(results[5].code == CISTERN_NOT_FOUND);

  cistern_stats stats = {.struct_size = sizeof stats};
  EXPECT_OK(cistern_client_stats(g_client, &stats));
  EXPECT(stats.put_present == 5 && stats.get_misses == 3 && stats.get_bytes == 5 * kChunk);
  EXPECT(stats.verify_failures == 0);
  cistern_wire_info wire = {.struct_size = sizeof wire};
  EXPECT_OK(cistern_client_wire(g_client, 0, &wire));
  EXPECT(strcmp(wire.wire, "shm") == 0 || strcmp(wire.wire, "tcp") == 0);
  EXPECT_CODE(CISTERN_NOT_FOUND, cistern_client_wire(g_client, 1000, &wire));
}

/* A key cut into many spans on the way in, and into others on the way out; ranges; parts. */
static void test_spans_and_ranges(void) {
  const cistern_id id = id_of(g_ns, "spans");
  cistern_span in[kParts], out[3];
  for (int i = 0; i < kParts; ++i) in[i] = (cistern_span){source(0) + i * kPart, kPart};
  const cistern_put_options parts = {.struct_size = sizeof parts, .part_bytes = kPart};
  const cistern_put_item put = {.struct_size = sizeof put, .id = id, .spans = in, .span_count = kParts};
  cistern_chunk_result result;
  EXPECT_OK(cistern_put(g_ns, &put, 1, &parts, &result));
  EXPECT(result.code == CISTERN_OK);
  wipe_targets();
  out[0] = (cistern_span){target(0), 100};
  out[1] = (cistern_span){target(1), 40000};
  out[2] = (cistern_span){target(2), kChunk - 40100};
  cistern_get_item get = {.struct_size = sizeof get, .id = id, .spans = out, .span_count = 3};
  EXPECT_OK(cistern_get(g_ns, &get, 1, NULL, &result));
  EXPECT(result.code == CISTERN_OK && result.flags == CISTERN_RESULT_VERIFIED);
  EXPECT(is_pattern(target(0), 0, 0, 100) && is_pattern(target(1), 0, 100, 40000));
  EXPECT(is_pattern(target(2), 0, 40100, kChunk - 40100));

  wipe_targets();
  out[0] = (cistern_span){target(0), 5000};
  get.span_count = 1;
  get.range_offset = 3000;
  get.range_bytes = 5000;
  EXPECT_OK(cistern_get(g_ns, &get, 1, NULL, &result));
  EXPECT(result.code == CISTERN_OK && is_pattern(target(0), 0, 3000, 5000));
  EXPECT(result.flags == 0); /* the range cuts parts */
  EXPECT(target(0)[5000] == 0xEE);
  get.range_bytes = get.range_offset = 0;
  get.first_part = 2;
  get.part_count = 3;
  out[0].bytes = 3 * kPart;
  EXPECT_OK(cistern_get(g_ns, &get, 1, NULL, &result));
  EXPECT(result.code == CISTERN_OK && result.flags == CISTERN_RESULT_VERIFIED);
  EXPECT(is_pattern(target(0), 0, 2 * kPart, 3 * kPart));
  get.range_bytes = 1; /* both */
  EXPECT_OK(cistern_get(g_ns, &get, 1, NULL, &result));
  EXPECT(result.code == CISTERN_INVALID_ARGUMENT);
  get.range_bytes = 0;
  get.first_part = get.part_count = 0;
  out[0].bytes = kChunk + 1; /* too long by one, until that is allowed */
  EXPECT_OK(cistern_get(g_ns, &get, 1, NULL, &result));
  EXPECT(result.code == CISTERN_INVALID_ARGUMENT && result.bytes == kChunk);
  get.flags = CISTERN_GET_ANY_LENGTH;
  EXPECT_OK(cistern_get(g_ns, &get, 1, NULL, &result));
  EXPECT(result.code == CISTERN_OK && result.bytes == kChunk);

  /* Another shard of the same key is another chunk. */
  get.flags = 0;
  out[0].bytes = kChunk;
  get.shard = 3;
  EXPECT_OK(cistern_get(g_ns, &get, 1, NULL, &result));
  EXPECT(result.code == CISTERN_NOT_FOUND);
}

/* Units of an engine's paged cache: 4 layers, 4 units; unit u of layer l at l * 4 + u. */
static void test_layouts(void) {
  enum { kLayers = 4, kUnits = 4, kPiece = 4096 };
  unsigned char* const pages = target(0);
  void* bases[kLayers];
  for (int l = 0; l < kLayers; ++l) bases[l] = pages + l * kUnits * kPiece;
  const cistern_layout layout = {.struct_size = sizeof layout, .unit_count = kUnits, .bases = bases,
                                 .base_count = kLayers, .unit_stride_bytes = kPiece,
                                 .piece_bytes = kPiece};
  uint32_t id = 0;
  EXPECT_OK(cistern_register_layout(g_client, &layout, &id));
  EXPECT(id != 0);
  for (int l = 0; l < kLayers; ++l) memset(pages + (l * kUnits + 1) * kPiece, 'a' + l, kPiece);
  cistern_put_item put = {.struct_size = sizeof put, .id = id_of(g_ns, "unit"), .layout = id, .unit = 1};
  cistern_chunk_result result;
  EXPECT_OK(cistern_put(g_ns, &put, 1, NULL, &result));
  EXPECT(result.code == CISTERN_OK);
  cistern_get_item get = {.struct_size = sizeof get, .id = put.id, .layout = id, .unit = 2};
  EXPECT_OK(cistern_get(g_ns, &get, 1, NULL, &result));
  EXPECT(result.code == CISTERN_OK && result.bytes == kLayers * kPiece);
  for (int l = 0; l < kLayers; ++l)
    EXPECT(memcmp(pages + (l * kUnits + 1) * kPiece, pages + (l * kUnits + 2) * kPiece, kPiece) == 0);
  get.unit = kUnits;
  EXPECT_OK(cistern_get(g_ns, &get, 1, NULL, &result));
  EXPECT(result.code == CISTERN_INVALID_ARGUMENT);
  EXPECT_OK(cistern_unregister_layout(g_client, id));
  EXPECT_CODE(CISTERN_NOT_FOUND, cistern_unregister_layout(g_client, id));
  get.unit = 2;
  EXPECT_OK(cistern_get(g_ns, &get, 1, NULL, &result));
  EXPECT(result.code == CISTERN_INVALID_ARGUMENT);
}

/* Another client gets by the first one's ticket. Changed tickets are refused. */
static void test_tickets(void) {
  cistern_id ids[3];
  cistern_chunk_result results[3];
  make_ids("ticket", 3, ids);
  put_all(ids, 3, results);
  cistern_lookup lookup, adopted;
  EXPECT_OK(cistern_lookup_keys(g_ns, ids, 3, NULL, NULL, NULL, &lookup));
  size_t bytes = 0;
  EXPECT_CODE(CISTERN_RESOURCE_EXHAUSTED, cistern_lookup_ticket(lookup, NULL, 0, &bytes));
  unsigned char ticket[4096];
  EXPECT(bytes > 0 && bytes < sizeof ticket);
  EXPECT_OK(cistern_lookup_ticket(lookup, ticket, sizeof ticket, &bytes));

  cistern_client other;
  cistern_namespace ns;
  const cistern_client_options options = {.struct_size = sizeof options, .master_address = g_master,
                                          .pool_token_file = g_token, .wire = CISTERN_WIRE_TCP};
  EXPECT_OK(cistern_connect(&options, &other));
  EXPECT_OK(cistern_open_namespace(other, "c_abi", "v1", NULL, NULL, &ns));
  cistern_lookup_info info = {.struct_size = sizeof info};
  EXPECT_OK(cistern_adopt(ns, ticket, bytes, &info, &adopted));
  EXPECT(info.key_count == 3 && info.leading_run == 3 && info.lease_count == 1);
  unsigned char* const mine = malloc(kChunk);
  cistern_buffer buffer;
  const cistern_buffer_desc desc = {.struct_size = sizeof desc, .data = mine, .bytes = kChunk};
  EXPECT_OK(cistern_register_buffer(other, &desc, &buffer));
  const cistern_span span = {mine, kChunk};
  const cistern_get_item get = {.struct_size = sizeof get, .id = ids[2], .spans = &span, .span_count = 1};
  EXPECT_OK(cistern_get(ns, &get, 1, NULL, results));
  EXPECT(results[0].code == CISTERN_OK && is_pattern(mine, 2, 0, kChunk));
  EXPECT_OK(cistern_buffer_free(buffer));
  EXPECT_OK(cistern_get(ns, &get, 1, NULL, results));
  EXPECT(results[0].code == CISTERN_INVALID_ARGUMENT); /* not registered any more */
  free(mine);
  /* The other may end the leases too. */
  EXPECT_OK(cistern_release(adopted, NULL));
  EXPECT_OK(cistern_remove(g_ns, ids, 3, NULL, results));
  for (int i = 0; i < 3; ++i) EXPECT(results[i].code == CISTERN_OK);

  cistern_lookup none = {0};
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_adopt(ns, ticket, bytes - 1, NULL, &none));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_adopt(ns, ticket, 0, NULL, &none));
  ticket[bytes / 2] ^= 1;
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_adopt(ns, ticket, bytes, NULL, &none));
  EXPECT(none.value == 0);
  cistern_namespace foreign;
  EXPECT_OK(cistern_open_namespace(other, "c_abi_other", "v1", NULL, NULL, &foreign));
  ticket[bytes / 2] ^= 1;
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_adopt(foreign, ticket, bytes, NULL, &none));
  EXPECT_OK(cistern_lookup_free(lookup));
  EXPECT_OK(cistern_lookup_free(adopted));
  EXPECT_OK(cistern_close(other));
  /* What outlives its client says so. */
  EXPECT_CODE(CISTERN_FAILED_PRECONDITION, cistern_get(ns, &get, 1, NULL, results));
  EXPECT(results[0].code == CISTERN_FAILED_PRECONDITION);
  EXPECT_OK(cistern_namespace_free(ns));
  EXPECT_OK(cistern_namespace_free(foreign));
}

static void await_fd(int fd) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  int n;
  do n = poll(&p, 1, 20000);
  while (n < 0 && errno == EINTR);
  EXPECT(n == 1);
}

static void test_async(void) {
  cistern_id ids[kChunks];
  cistern_chunk_result results[kChunks];
  make_ids("async", kChunks, ids);
  cistern_op op;
  int fd = -1;
  { /* Items and spans are gone as soon as the call has begun. */
    cistern_put_item* items = calloc(kChunks, sizeof *items);
    cistern_span* spans = calloc(kChunks, sizeof *spans);
    for (int i = 0; i < kChunks; ++i) {
      spans[i] = (cistern_span){source(i), kChunk};
      items[i].struct_size = sizeof *items;
      items[i].id = ids[i];
      items[i].spans = &spans[i];
      items[i].span_count = 1;
    }
    const cistern_put_options options = {.struct_size = sizeof options, .part_bytes = kPart,
                                         .flags = CISTERN_PUT_WAIT_VISIBLE};
    EXPECT_OK(cistern_put_async(g_ns, items, kChunks - 1, &options, &op));
    memset(items, 0xFF, kChunks * sizeof *items);
    memset(spans, 0xFF, kChunks * sizeof *spans);
    free(items);
    free(spans);
  }
  EXPECT_OK(cistern_op_eventfd(op, &fd));
  await_fd(fd);
  EXPECT_OK(cistern_op_wait(op, 0));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_op_results(op, results, kChunks - 2));
  EXPECT_OK(cistern_op_results(op, results, kChunks));
  for (int i = 0; i < kChunks - 1; ++i) EXPECT(results[i].code == CISTERN_OK);
  EXPECT_CODE(CISTERN_FAILED_PRECONDITION, cistern_op_results(op, results, kChunks));
  uint32_t parts = 0;
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_op_parts_done(op, &parts)); /* no get */
  EXPECT_OK(cistern_op_free(op));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_op_wait(op, 0));

  cistern_op look;
  cistern_lookup_info info = {.struct_size = sizeof info};
  uint8_t present[kChunks];
  EXPECT_OK(cistern_lookup_async(g_ns, ids, kChunks, NULL, &look));
  EXPECT_OK(cistern_op_wait(look, -1));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_op_results(look, results, kChunks));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_op_lookup(look, NULL, present, kChunks - 1, NULL));
  EXPECT_OK(cistern_op_lookup(look, &info, present, kChunks, NULL));
  EXPECT(info.leading_run == kChunks - 1 && present[kChunks - 2] == 1 && present[kChunks - 1] == 0);
  EXPECT_OK(cistern_op_free(look));

  /* Part by part, one chunk of it missing. */
  wipe_targets();
  cistern_get_item items[kChunks];
  cistern_span spans[kChunks];
  get_items(ids, kChunks, items, spans);
  const cistern_get_options by_part = {.struct_size = sizeof by_part, .order = CISTERN_ORDER_BY_PART};
  EXPECT_OK(cistern_get_async(g_ns, items, kChunks, &by_part, &op));
  EXPECT_OK(cistern_op_part_eventfd(op, &fd));
  await_fd(fd);
  for (uint32_t part = 0; part < kParts; ++part) {
    EXPECT_CODE(CISTERN_NOT_FOUND, cistern_op_wait_part(op, part, -1));
    for (int i = 0; i < kChunks - 1; ++i)
      EXPECT(is_pattern(target(i) + part * kPart, i, (int)part * kPart, kPart));
  }
  cistern_missed_chunk missed[2];
  size_t count = 0;
  EXPECT_OK(cistern_op_missed(op, missed, 2, &count));
  EXPECT(count == 1 && missed[0].item == kChunks - 1 && missed[0].code == CISTERN_NOT_FOUND);
  EXPECT_OK(cistern_op_results(op, results, kChunks));
  EXPECT(results[0].code == CISTERN_OK && results[kChunks - 1].code == CISTERN_NOT_FOUND);
  EXPECT_OK(cistern_op_parts_done(op, &parts));
  EXPECT(parts == CISTERN_ALL_PARTS);
  EXPECT_OK(cistern_op_free(op));

  /* Cancelled, and freed without a word: the memory is ours again either way. */
  for (int round = 0; round < 20; ++round) {
    EXPECT_OK(cistern_get_async(g_ns, items, kChunks, NULL, &op));
    if (round % 2 == 0) EXPECT_OK(cistern_op_cancel(op));
    EXPECT_OK(cistern_op_free(op));
    wipe_targets();
    usleep(500);
    for (int i = 0; i < kChunks * kChunk; ++i) EXPECT(target(0)[i] == 0xEE);
  }
  EXPECT_OK(cistern_remove_all(g_ns, &(cistern_remove_options){.struct_size = sizeof(cistern_remove_options),
                                                               .flags = CISTERN_REMOVE_FORCE}, NULL));
}

static void* wait_for(void* op) {
  const cistern_code code = cistern_op_wait(*(cistern_op*)op, -1);
  EXPECT(code == CISTERN_OK || code == CISTERN_INVALID_ARGUMENT);
  return NULL;
}

/* An op that one thread waits for while another frees it. */
static void test_threads(void) {
  cistern_id ids[kChunks];
  make_ids("threads", kChunks, ids);
  for (int round = 0; round < 20; ++round) {
    cistern_op op;
    EXPECT_OK(cistern_lookup_async(g_ns, ids, kChunks, NULL, &op));
    pthread_t threads[3];
    for (int t = 0; t < 3; ++t) EXPECT(pthread_create(&threads[t], NULL, wait_for, &op) == 0);
    EXPECT_OK(cistern_op_free(op));
    for (int t = 0; t < 3; ++t) pthread_join(threads[t], NULL);
  }
}

static void test_mutable_and_keys(void) {
  const cistern_namespace_options options = {
      .struct_size = sizeof options, .flags = CISTERN_NAMESPACE_MUTABLE | CISTERN_NAMESPACE_KEEP_KEYS};
  cistern_namespace ns;
  EXPECT_OK(cistern_open_namespace(g_client, "c_abi_mutable", "v1", &options, NULL, &ns));
  cistern_namespace_info info = {.struct_size = sizeof info};
  EXPECT_OK(cistern_namespace_get_info(ns, &info));
  EXPECT(info.flags == options.flags && info.verify == CISTERN_VERIFY_ALWAYS);
  cistern_namespace same;
  EXPECT_CODE(CISTERN_FAILED_PRECONDITION,
              cistern_open_namespace(g_client, "c_abi_mutable", "v2", &options, NULL, &same));
  EXPECT(strstr(cistern_last_message(), "v1") != NULL && strstr(cistern_last_message(), "v2") != NULL);

  const char* const keys[3] = {"user/a", "user/b", "other/c"};
  cistern_chunk_result result;
  for (int i = 0; i < 3; ++i) {
    const cistern_span span = {source(i), kChunk};
    cistern_put_item put = {.struct_size = sizeof put, .id = id_of(ns, keys[i]), .spans = &span,
                            .span_count = 1, .key = keys[i], .key_bytes = strlen(keys[i])};
    EXPECT_OK(cistern_put(ns, &put, 1, NULL, &result));
    EXPECT(result.code == CISTERN_OK);
  }
  const cistern_span other = {source(7), kChunk};
  cistern_put_item put = {.struct_size = sizeof put, .id = id_of(ns, "user/a"), .spans = &other,
                          .span_count = 1, .key = "user/a", .key_bytes = 6};
  /* Gets ask the master where mutable chunks are: so it must know. */
  const cistern_put_options replace = {.struct_size = sizeof replace,
                                       .flags = CISTERN_PUT_REPLACE | CISTERN_PUT_WAIT_VISIBLE};
  EXPECT_OK(cistern_put(ns, &put, 1, &replace, &result));
  EXPECT(result.code == CISTERN_OK);
  const cistern_span into = {target(0), kChunk};
  const cistern_get_item get = {.struct_size = sizeof get, .id = put.id, .spans = &into, .span_count = 1};
  EXPECT_OK(cistern_get(ns, &get, 1, NULL, &result));
  EXPECT_OK(result.code);
  EXPECT(is_pattern(target(0), 7, 0, kChunk));
  /* In an immutable namespace replacing is refused. */
  put.key = NULL;
  put.key_bytes = 0;
  EXPECT(cistern_put(g_ns, &put, 1, &replace, &result) == CISTERN_FAILED_PRECONDITION ||
         result.code == CISTERN_FAILED_PRECONDITION);

  int seen = 0, pages = 0;
  char cursor[4096];
  cistern_list_options list = {.struct_size = sizeof list, .max_keys = 1};
  for (;;) {
    cistern_key_page page;
    EXPECT_OK(cistern_list_keys(ns, "^user/", 6, &list, &page));
    cistern_key_page_info page_info = {.struct_size = sizeof page_info};
    EXPECT_OK(cistern_key_page_get_info(page, &page_info));
    for (size_t i = 0; i < page_info.key_count; ++i) {
      cistern_listed_key key = {.struct_size = sizeof key};
      EXPECT_OK(cistern_key_page_key(page, i, &key));
      EXPECT(key.key_bytes == 6 && memcmp(key.key, "user/", 5) == 0 && key.bytes == kChunk);
      seen |= ((const char*)key.key)[5] == 'a' ? 1 : 2;
    }
    cistern_listed_key key = {.struct_size = sizeof key};
    EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_key_page_key(page, page_info.key_count, &key));
    EXPECT_OK(cistern_key_page_next(page, cursor, sizeof cursor));
    list.cursor = cursor;
    list.cursor_bytes = page_info.cursor_bytes;
    EXPECT_OK(cistern_key_page_free(page));
    EXPECT(++pages < 1000);
    if (page_info.cursor_bytes == 0) break;
  }
  EXPECT(seen == 3);
  cistern_match_removal removal = {.struct_size = sizeof removal};
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_remove_matching(ns, "(", 1, NULL, &removal));
  EXPECT_OK(cistern_remove_matching(ns, "^user/", 6, NULL, &removal));
  EXPECT(removal.matched == 2 && removal.removed == 2 && removal.refused == 0 && removal.failed == 0);
  cistern_key_page none;
  EXPECT_CODE(CISTERN_FAILED_PRECONDITION, cistern_list_keys(g_ns, "", 0, NULL, &none));
  uint64_t removed = 0;
  EXPECT_OK(cistern_remove_all(ns, NULL, &removed));
  EXPECT(removed == 1);
  EXPECT_OK(cistern_namespace_free(ns));
}

static int g_lines;
static void count_lines(void* user, int32_t severity, const char* text) {
  EXPECT(user == &g_lines && severity >= CISTERN_LOG_WARNING && strlen(text) > 0);
  ++g_lines;
}

static void test_connect_failures(void) {
  EXPECT_OK(cistern_set_log_sink(count_lines, &g_lines, CISTERN_LOG_WARNING));
  cistern_client client = {0};
  cistern_client_options options = {.struct_size = sizeof options, .master_address = "127.0.0.1:1",
                                    .deadline_us = 300000};
  const cistern_code code = cistern_connect(&options, &client);
  EXPECT(code == CISTERN_UNAVAILABLE || code == CISTERN_DEADLINE_EXCEEDED);
  EXPECT(strstr(cistern_last_message(), "127.0.0.1:1") != NULL && client.value == 0);
  options.flags = CISTERN_CONNECT_LAZY;
  EXPECT_OK(cistern_connect(&options, &client));
  const cistern_call_options call = {.struct_size = sizeof call, .deadline_us = 200000, .background = 1};
  EXPECT(cistern_ping(client, &call) != CISTERN_OK);
  EXPECT_OK(cistern_close(client));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_ping(client, &call));
  options = (cistern_client_options){.struct_size = sizeof options, .master_address = g_master,
                                     .pool_token_file = "/nonexistent/token"};
  EXPECT(cistern_connect(&options, &client) != CISTERN_OK);
  EXPECT(strstr(cistern_last_message(), "/nonexistent/token") != NULL);
  options.pool_token_file = NULL;
  EXPECT_CODE(CISTERN_PERMISSION_DENIED, cistern_connect(&options, &client));
  EXPECT_OK(cistern_set_log_sink(NULL, NULL, CISTERN_LOG_DEBUG));
}

static void test_fork(void) {
  cistern_id id = id_of(g_ns, "fork");
  cistern_op op;
  EXPECT_OK(cistern_lookup_async(g_ns, &id, 1, NULL, &op));
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    alarm(30); /* a hang ends here */
    uint8_t present;
    cistern_chunk_result result;
    int fd;
    const cistern_span span = {target(0), kChunk};
    const cistern_get_item get = {.struct_size = sizeof get, .id = id, .spans = &span, .span_count = 1};
    EXPECT_CODE(CISTERN_FAILED_PRECONDITION, cistern_ping(g_client, NULL));
    EXPECT(strstr(cistern_last_message(), "fork") != NULL);
    EXPECT_CODE(CISTERN_FAILED_PRECONDITION, cistern_exists(g_ns, &id, 1, NULL, &present));
    EXPECT_CODE(CISTERN_FAILED_PRECONDITION, cistern_get(g_ns, &get, 1, NULL, &result));
    EXPECT_OK(cistern_op_wait(op, -1));
    EXPECT_CODE(CISTERN_FAILED_PRECONDITION, cistern_op_lookup(op, NULL, NULL, 0, NULL));
    EXPECT_CODE(CISTERN_RESOURCE_EXHAUSTED, cistern_op_eventfd(op, &fd));
    EXPECT_OK(cistern_op_free(op));
    EXPECT_OK(cistern_buffer_free(g_buffer));
    EXPECT_OK(cistern_namespace_free(g_ns));
    EXPECT_OK(cistern_close(g_client));
    connect_pool(); /* anew */
    EXPECT_OK(cistern_exists(g_ns, &id, 1, NULL, &present));
    EXPECT(present == 0);
    EXPECT_OK(cistern_close(g_client));
    _exit(0);
  }
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_OK(cistern_op_lookup(op, NULL, NULL, 0, NULL)); /* undisturbed */
  EXPECT_OK(cistern_op_free(op));
  EXPECT_OK(cistern_ping(g_client, NULL));
}

void test_bad_arguments(cistern_client client, cistern_namespace ns, void* memory);

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  g_master = argv[1];
  g_token = argv[2];
  alarm(240);
  test_versions();
  connect_pool();
  test_put_lookup_get();
  test_spans_and_ranges();
  test_layouts();
  test_tickets();
  test_async();
  test_threads();
  test_mutable_and_keys();
  test_connect_failures();
  test_bad_arguments(g_client, g_ns, g_memory);
  test_fork();
  EXPECT_OK(cistern_buffer_free(g_buffer));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_buffer_free(g_buffer));
  EXPECT_OK(cistern_namespace_free(g_ns));
  EXPECT_OK(cistern_close(g_client));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_close(g_client));
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_ping(g_client, NULL));
  printf("ok\n");
  return 0;
}
