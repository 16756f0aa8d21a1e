/* Every way of calling wrongly that a library can see: an answer each time, never a crash. */
#include <string.h>

#include "check.h"

#define REFUSED(call) EXPECT_CODE(CISTERN_INVALID_ARGUMENT, call)

static void null_pointers(cistern_client client, cistern_namespace ns) {
  cistern_id id = {{1}};
  uint8_t present;
  cistern_lookup lookup;
  cistern_op op;
  cistern_buffer buffer;
  cistern_chunk_result result;
  const uint64_t one = 1;
  REFUSED(cistern_connect(NULL, NULL));
  REFUSED(cistern_pool_id(client, NULL));
  REFUSED(cistern_client_stats(client, NULL));
  REFUSED(cistern_client_wire(client, 0, NULL));
  REFUSED(cistern_register_buffer(client, NULL, &buffer));
  REFUSED(cistern_allocate_buffer(client, 4096, NULL, NULL));
  REFUSED(cistern_register_layout(client, NULL, NULL));
  REFUSED(cistern_open_namespace(client, NULL, "f", NULL, NULL, &ns));
  REFUSED(cistern_open_namespace(client, "n", NULL, NULL, NULL, &ns));
  REFUSED(cistern_open_namespace(client, "n", "f", NULL, NULL, NULL));
  REFUSED(cistern_namespace_get_info(ns, NULL));
  REFUSED(cistern_hash(ns, NULL, &one, 1, &id));
  REFUSED(cistern_hash(ns, "k", NULL, 1, &id));
  REFUSED(cistern_hash(ns, "k", &one, 1, NULL));
  REFUSED(cistern_lookup_keys(ns, NULL, 1, NULL, NULL, NULL, NULL));
  REFUSED(cistern_exists(ns, NULL, 1, NULL, &present));
  REFUSED(cistern_exists(ns, &id, 1, NULL, NULL));
  REFUSED(cistern_prefetch(ns, NULL, 1, NULL));
  REFUSED(cistern_adopt(ns, NULL, 10, NULL, &lookup));
  REFUSED(cistern_adopt(ns, "ticket", 6, NULL, NULL));
  REFUSED(cistern_put(ns, NULL, 1, NULL, &result));
  EXPECT(result.code == CISTERN_INVALID_ARGUMENT);
  REFUSED(cistern_get(ns, NULL, 1, NULL, &result));
  REFUSED(cistern_put_async(ns, NULL, 1, NULL, &op));
  REFUSED(cistern_get_async(ns, NULL, 1, NULL, &op));
  REFUSED(cistern_lookup_async(ns, &id, 1, NULL, NULL));
  REFUSED(cistern_lookup_async(ns, NULL, 1, NULL, &op));
  REFUSED(cistern_remove(ns, NULL, 1, NULL, &result));
  REFUSED(cistern_remove(ns, &id, 1, NULL, NULL));
  REFUSED(cistern_list_keys(ns, NULL, 1, NULL, NULL));
  REFUSED(cistern_remove_matching(ns, NULL, 1, NULL, NULL));
  /* Nothing of nothing is no error. */
  cistern_lookup_info info = {.struct_size = sizeof info};
  EXPECT_OK(cistern_put(ns, NULL, 0, NULL, NULL));
  EXPECT_OK(cistern_get(ns, NULL, 0, NULL, NULL));
  EXPECT_OK(cistern_hash(ns, NULL, NULL, 0, NULL));
  EXPECT_OK(cistern_exists(ns, NULL, 0, NULL, NULL));
  EXPECT_OK(cistern_lookup_keys(ns, NULL, 0, NULL, &info, NULL, NULL));
  EXPECT(info.key_count == 0 && info.lease_count == 0);
}

static void sizes(cistern_client client, cistern_namespace ns) {
  cistern_id id = {{1}};
  cistern_chunk_result results[2];
  cistern_stats stats = {.struct_size = 0};
  REFUSED(cistern_client_stats(client, &stats));
  stats.struct_size = sizeof stats - 8;
  REFUSED(cistern_client_stats(client, &stats));
  const cistern_call_options no_size = {.deadline_us = 5};
  REFUSED(cistern_ping(client, &no_size));
  const cistern_lookup_options huge = {.struct_size = 0xFFFFFFF0u};
  REFUSED(cistern_lookup_keys(ns, &id, 1, &huge, NULL, NULL, NULL));
  cistern_put_item items[2];
  memset(items, 0, sizeof items);
  REFUSED(cistern_put(ns, items, 2, NULL, results));
  EXPECT(results[0].code == CISTERN_INVALID_ARGUMENT && results[1].code == CISTERN_INVALID_ARGUMENT);
  items[0].struct_size = sizeof items[0];
  REFUSED(cistern_put(ns, items, 2, NULL, results)); /* the second says another */
  EXPECT(strstr(cistern_last_message(), "[1]") != NULL);
  REFUSED(cistern_put(ns, items, (size_t)CISTERN_MAX_BATCH + 1, NULL, results));
  REFUSED(cistern_get(ns, NULL, (size_t)-1, NULL, results));

  /* A newer caller's longer structs: taken when the rest is 0, else refused. */
  struct {
    cistern_call_options known;
    uint64_t added;
  } newer = {{.struct_size = sizeof newer}, 0};
  EXPECT_OK(cistern_ping(client, &newer.known));
  newer.added = 1;
  REFUSED(cistern_ping(client, &newer.known));
  struct {
    cistern_get_item known;
    uint64_t added;
  } longer[2];
  memset(longer, 0, sizeof longer);
  longer[0].known.struct_size = longer[1].known.struct_size = sizeof longer[0];
  EXPECT_OK(cistern_get(ns, &longer[0].known, 2, NULL, results));
  EXPECT(results[0].code == CISTERN_INVALID_ARGUMENT); /* no memory, but an answer of its own */
  longer[1].added = 1;
  REFUSED(cistern_get(ns, &longer[0].known, 2, NULL, results));
}

static void values(cistern_client client, cistern_namespace ns, void* memory) {
  cistern_chunk_result result;
  cistern_id id = {{1}};
  const cistern_span span = {memory, 4096};
  cistern_put_item put = {.struct_size = sizeof put, .id = id, .spans = NULL, .span_count = 1};
  REFUSED(cistern_put(ns, &put, 1, NULL, &result));
  put.spans = &span;
  put.span_count = (uint64_t)1 << 60;
  REFUSED(cistern_put(ns, &put, 1, NULL, &result));
  put.span_count = 1;
  put.key_bytes = 5;
  REFUSED(cistern_put(ns, &put, 1, NULL, &result));
  put.key_bytes = 0;
  put.shard = 4096; /* 4095 at most */
  EXPECT_OK(cistern_put(ns, &put, 1, NULL, &result));
  EXPECT(result.code == CISTERN_INVALID_ARGUMENT);
  put.shard = 0;
  put.layout = 77; /* spans and a layout; a layout that is none */
  EXPECT_OK(cistern_put(ns, &put, 1, NULL, &result));
  EXPECT(result.code == CISTERN_INVALID_ARGUMENT);
  cistern_span wild = {(void*)16, 4096};
  put.layout = 0;
  put.spans = &wild;
  EXPECT_OK(cistern_put(ns, &put, 1, NULL, &result));
  EXPECT(result.code == CISTERN_INVALID_ARGUMENT);
  wild = (cistern_span){memory, (uint64_t)-1};
  EXPECT_OK(cistern_put(ns, &put, 1, NULL, &result));
  EXPECT(result.code == CISTERN_INVALID_ARGUMENT);
  wild = (cistern_span){memory, 4095}; /* too small for a chunk */
  EXPECT_OK(cistern_put(ns, &put, 1, NULL, &result));
  EXPECT(result.code == CISTERN_INVALID_ARGUMENT);

  const cistern_put_options flags = {.struct_size = sizeof flags, .flags = 1u << 31};
  REFUSED(cistern_put(ns, &put, 1, &flags, &result));
  const cistern_get_options order = {.struct_size = sizeof order, .order = 9};
  REFUSED(cistern_get(ns, NULL, 0, &order, NULL));
  cistern_namespace other;
  cistern_namespace_options options = {.struct_size = sizeof options, .verify = 9};
  REFUSED(cistern_open_namespace(client, "n", "f", &options, NULL, &other));
  options.verify = 0;
  options.part_bytes = 5000;
  REFUSED(cistern_open_namespace(client, "n", "f", &options, NULL, &other));
  options.part_bytes = 0;
  options.flags = 1u << 20;
  REFUSED(cistern_open_namespace(client, "n", "f", &options, NULL, &other));
  REFUSED(cistern_open_namespace(client, "", "f", NULL, NULL, &other));

  cistern_buffer buffer;
  cistern_buffer_desc desc = {.struct_size = sizeof desc, .data = memory, .bytes = 0};
  REFUSED(cistern_register_buffer(client, &desc, &buffer));
  desc.bytes = 4096;
  desc.flags = CISTERN_BUFFER_NO_READ | CISTERN_BUFFER_NO_WRITE;
  REFUSED(cistern_register_buffer(client, &desc, &buffer));
  desc.flags = 0;
  desc.kind = CISTERN_MEMORY_CUDA;
  EXPECT_CODE(CISTERN_UNIMPLEMENTED, cistern_register_buffer(client, &desc, &buffer));
  desc.kind = 17;
  REFUSED(cistern_register_buffer(client, &desc, &buffer));
  void* data;
  REFUSED(cistern_allocate_buffer(client, 0, &buffer, &data));
  REFUSED(cistern_allocate_buffer(client, (uint64_t)1 << 62, &buffer, &data));
  cistern_client none;
  cistern_client_options connect = {.struct_size = sizeof connect, .wire = 12};
  REFUSED(cistern_connect(&connect, &none));
  connect.wire = 0;
  connect.connections_per_store = 1000000;
  REFUSED(cistern_connect(&connect, &none));
  connect.connections_per_store = 0;
  connect.master_address = "no port";
  REFUSED(cistern_connect(&connect, &none));
  REFUSED(cistern_set_log_sink(NULL, NULL, 9));

  const uint64_t lengths[2] = {1, 5000}; /* the second is too long; its bytes are not looked at */
  cistern_id ids[2];
  REFUSED(cistern_hash(ns, "k", lengths, 2, ids));
  const uint64_t empty = 0;
  REFUSED(cistern_hash(ns, "k", &empty, 1, ids));
  const cistern_lookup_options shards = {.struct_size = sizeof shards, .shard_first = 4000, .shard_count = 97};
  REFUSED(cistern_lookup_keys(ns, &id, 1, &shards, NULL, NULL, NULL));
}

static void handles(cistern_client client, cistern_namespace ns) {
  cistern_id id = {{1}};
  uint8_t present;
  EXPECT_CODE(CISTERN_INVALID_ARGUMENT, cistern_ping((cistern_client){0}, NULL));
  /* Of another kind. */
  REFUSED(cistern_ping((cistern_client){ns.value}, NULL));
  EXPECT(strcmp(cistern_last_message(), "not a client but a namespace") == 0);
  REFUSED(cistern_exists((cistern_namespace){client.value}, &id, 1, NULL, &present));
  REFUSED(cistern_op_wait((cistern_op){client.value}, 0));
  REFUSED(cistern_close((cistern_client){ns.value}));
  EXPECT_OK(cistern_ping(client, NULL)); /* still there */
  /* Never made. */
  REFUSED(cistern_op_free((cistern_op){0xFFFFFFFFFFFFFFFFu}));
  REFUSED(cistern_key_page_free((cistern_key_page){12345}));
  /* None: nothing to free. */
  EXPECT_OK(cistern_close((cistern_client){0}));
  EXPECT_OK(cistern_namespace_free((cistern_namespace){0}));
  EXPECT_OK(cistern_buffer_free((cistern_buffer){0}));
  EXPECT_OK(cistern_lookup_free((cistern_lookup){0}));
  EXPECT_OK(cistern_op_free((cistern_op){0}));
  EXPECT_OK(cistern_key_page_free((cistern_key_page){0}));
}

void test_bad_arguments(cistern_client client, cistern_namespace ns, void* memory);
void test_bad_arguments(cistern_client client, cistern_namespace ns, void* memory) {
  null_pointers(client, ns);
  sizes(client, ns);
  values(client, ns, memory);
  handles(client, ns);
}
