/* Cistern's client library as a C interface: batch put and get of KV-cache chunks into memory the
 * caller registered. For engines and for bindings of other languages; C++ programs may take
 * <cistern/client.h>, which has the same calls. client/examples/put_get.c is a program to copy.
 *
 * Stability. libcistern.so.1 keeps every symbol and every meaning of this header for as long as its
 * name ends in .1; what is added gets a symbol version of its own. Structs begin with struct_size:
 * set it to sizeof the struct and all else that you do not use to 0; 0 always means the default. A
 * struct may grow at its end: a shorter one (of an older header) is taken with 0 for the rest; a
 * longer one is refused if what this library does not know is not 0. Four small ones without a size
 * never change: cistern_id, cistern_span, cistern_chunk_result, cistern_missed_chunk.
 *
 * Handles are numbers in a struct, 0 = none, and never used twice. One that was freed, is of
 * another kind, or never was, is answered CISTERN_INVALID_ARGUMENT, also by the functions that
 * free. Freeing 0 does nothing and is CISTERN_OK.
 *
 * Errors. Calls answer a cistern_code and set cistern_last_message() of the thread. No exception
 * comes out of a call. Out parameters are written only on CISTERN_OK unless a call says otherwise.
 *
 * Threads. Every function may be called by any thread at any time, on the same handles too.
 *
 * Time. Every call ends at the latest 150 ms after its deadline. When it has returned (an
 * asynchronous one: when it is done) no byte lands in, or is read from, the caller's memory.
 *
 * fork(). A child forked after cistern_connect has none of the library's threads: its calls on
 * handles of the parent answer CISTERN_FAILED_PRECONDITION at once, waits and frees return at once,
 * and the parent's calls go on undisturbed. It may connect anew.
 *
 * In the engine's process: one I/O thread for each client, no listening port, no signal handler, no
 * output unless a log sink is set.
 */
#ifndef CISTERN_CLIENT_CISTERN_H_
#define CISTERN_CLIENT_CISTERN_H_

#include <stddef.h>
#include <stdint.h>

#define CISTERN_ABI_MAJOR 1
#define CISTERN_ABI_MINOR 0

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a call, or of one chunk of a batch. The comment is the caller's next step. */
typedef int32_t cistern_code;
enum {
  CISTERN_OK = 0,
  CISTERN_PRESENT = 1,            /* put: it was there; nothing was sent */
  CISTERN_IN_PROGRESS = 2,        /* put: another client is putting it now. wait: not done yet */
  CISTERN_NOT_FOUND = 3,          /* get: a miss; compute it */
  CISTERN_RESOURCE_EXHAUSTED = 4, /* put: the pool has no room now; back off */
  CISTERN_INVALID_ARGUMENT = 5,   /* see the message */
  CISTERN_DATA_LOSS = 6,          /* get: bytes did not match, no other replica was good: a miss */
  CISTERN_UNAVAILABLE = 7,        /* store or master unreachable; retry */
  CISTERN_CANCELLED = 8,
  CISTERN_DEADLINE_EXCEEDED = 9,
  CISTERN_FAILED_PRECONDITION = 10, /* remove: leased or pinned. Closed client; forked child */
  CISTERN_ABORTED = 11,             /* stale ticket or cursor; look up or list again */
  CISTERN_INTERNAL = 12,
  CISTERN_UNIMPLEMENTED = 13,
  CISTERN_PERMISSION_DENIED = 14 /* connect: the token is wrong or missing */
};

/* "not found"; "unknown" for a number that is no code. Never NULL, never freed. */
const char* cistern_code_name(cistern_code code);

/* What the last call of this thread had to say, "" if nothing: why it failed, or (CISTERN_OK from a
 * batch) why the first of its chunks did. Valid until the thread's next call into the library.
 * Never NULL. cistern_last_message, cistern_code_name and the versions leave it as it is. */
const char* cistern_last_message(void);

/* "0.1.0": the release. */
const char* cistern_version(void);
/* What this library offers: CISTERN_ABI_MAJOR << 16 | CISTERN_ABI_MINOR of its own header. */
uint32_t cistern_abi_version(void);

enum {
  CISTERN_LOG_DEBUG = 0,
  CISTERN_LOG_INFO = 1,
  CISTERN_LOG_WARNING = 2,
  CISTERN_LOG_ERROR = 3
};
/* `text` ends in 0 and is gone after the call. From any thread, one call at a time. It must not
 * call into the library. */
typedef void (*cistern_log_fn)(void* user, int32_t severity, const char* text);
/* Where the library's lines go, for the whole process; NULL: nowhere (so it is at first). When it
 * returns, the sink before it is not called any more. */
cistern_code cistern_set_log_sink(cistern_log_fn sink, void* user, int32_t least_severity);

/* --- Handles and small things --------------------------------------------------------------- */

typedef struct cistern_client {
  uint64_t value;
} cistern_client;
typedef struct cistern_namespace {
  uint64_t value;
} cistern_namespace;
typedef struct cistern_buffer {
  uint64_t value;
} cistern_buffer;
typedef struct cistern_lookup {
  uint64_t value;
} cistern_lookup;
typedef struct cistern_op {
  uint64_t value;
} cistern_op;
typedef struct cistern_key_page {
  uint64_t value;
} cistern_key_page;

/* A key's hash in a namespace; also a store's or a pool's id. */
typedef struct cistern_id {
  uint8_t bytes[16];
} cistern_id;

/* A piece of registered memory. Lies inside one registered buffer. */
typedef struct cistern_span {
  void* data;
  uint64_t bytes;
} cistern_span;

#define CISTERN_RESULT_VERIFIED 1u

typedef struct cistern_chunk_result {
  cistern_code code;
  /* CISTERN_RESULT_VERIFIED: get: every byte was held to its digest, and the digests to the chunk's
   * name. Without it and CISTERN_OK: the namespace's options say so, or the range cuts parts. */
  uint32_t flags;
  uint64_t bytes; /* the chunk's real length where it is known */
} cistern_chunk_result;

/* At most so many items or keys a call. */
#define CISTERN_MAX_BATCH 16777216u

/* --- Clients ---------------------------------------------------------------------------------- */

enum { CISTERN_WIRE_AUTO = 0, CISTERN_WIRE_TCP = 1, CISTERN_WIRE_SHM = 2, CISTERN_WIRE_RDMA = 3 };

#define CISTERN_CONNECT_LAZY 1u /* makes no connection yet and cannot fail for want of one */

typedef struct cistern_client_options {
  uint32_t struct_size;
  uint32_t flags;                 /* CISTERN_CONNECT_* */
  const char* master_address;     /* NULL = "127.0.0.1:7600" */
  const char* pool_token_file;    /* mode 0600; NULL or "" = no token */
  uint64_t deadline_us;           /* of calls that name none; 0 = 5 s */
  uint32_t wire;                  /* CISTERN_WIRE_*: how stores are reached; AUTO picks the best */
  uint32_t connections_per_store; /* 0 = 2 */
  uint64_t max_inflight_bytes;    /* asked for at once from all stores; 0 = 256 MiB */
} cistern_client_options;

/* `options` may be NULL. Waits for the master within the deadline unless lazy. UNAVAILABLE or
 * DEADLINE_EXCEEDED name the address; FAILED_PRECONDITION: the forced wire does not lead to a
 * store, or the token file is not as it must be. */
cistern_code cistern_connect(const cistern_client_options* options, cistern_client* client);
/* Cancels puts, gets and lookups that are pending, waits for their quiet end; pings and opens end
 * within their deadlines. Namespaces, buffers and calls of the client
 * still have to be freed; until then they answer CISTERN_FAILED_PRECONDITION. */
cistern_code cistern_close(cistern_client client);

typedef struct cistern_call_options {
  uint32_t struct_size;
  uint32_t background;  /* 1: gives way to other calls */
  uint64_t deadline_us; /* 0 = the client's */
} cistern_call_options;

/* Every `options` below may be NULL. */
cistern_code cistern_ping(cistern_client client, const cistern_call_options* options);
cistern_code cistern_pool_id(cistern_client client, cistern_id* id);

typedef struct cistern_stats {
  uint32_t struct_size; /* in: sizeof; so much is written at most */
  uint32_t reserved;
  uint64_t lookups, lookup_keys, lookup_hits;
  uint64_t put_chunks, put_bytes, put_present;
  uint64_t get_chunks, get_bytes, get_misses;
  uint64_t verify_failures;
  uint64_t retries;
} cistern_stats;

/* What was counted since cistern_connect. */
cistern_code cistern_client_stats(cistern_client client, cistern_stats* stats);

typedef struct cistern_wire_info {
  uint32_t struct_size; /* in: sizeof */
  uint32_t reserved;
  cistern_id store;
  char wire[16]; /* "shm", "rdma", "tcp"; all texts end in 0 and are cut where they are too long */
  char address[128];
  char why[256];
} cistern_wire_info;

/* How the stores that were called so far are reached: number `index` of them, from 0.
 * NOT_FOUND: there are not so many. */
cistern_code cistern_client_wire(cistern_client client, size_t index, cistern_wire_info* info);

/* --- Memory ------------------------------------------------------------------------------------
 */

enum { CISTERN_MEMORY_HOST = 0, CISTERN_MEMORY_CUDA = 1, CISTERN_MEMORY_DMABUF = 2 };

#define CISTERN_BUFFER_NO_READ 1u  /* no put may read from it */
#define CISTERN_BUFFER_NO_WRITE 2u /* no get may write into it */

typedef struct cistern_buffer_desc {
  uint32_t struct_size;
  uint32_t flags; /* CISTERN_BUFFER_* */
  void* data;
  uint64_t bytes;
  uint32_t
      kind; /* CISTERN_MEMORY_*; others than HOST answer UNIMPLEMENTED where no wire serves them */
  int32_t device; /* CUDA */
  int32_t fd;     /* DMABUF; stays the caller's */
  uint32_t reserved;
  uint64_t fd_offset;
} cistern_buffer_desc;

/* Memory of the caller, which stays its owner and keeps it until cistern_buffer_free has returned.
 * Registrations may overlap; a span lies within one of them. */
cistern_code cistern_register_buffer(cistern_client client, const cistern_buffer_desc* desc,
                                     cistern_buffer* buffer);
/* Memory of the library, that every wire serves best: shared, page-aligned, zeroed. `*data` is
 * valid until cistern_buffer_free. RESOURCE_EXHAUSTED: the system has no room. */
cistern_code cistern_allocate_buffer(cistern_client client, uint64_t bytes, cistern_buffer* buffer,
                                     void** data);
/* Waits for calls in flight (within their deadlines); later ones that name the memory are refused.
 */
cistern_code cistern_buffer_free(cistern_buffer buffer);

/* Piece l of unit u is at bases[l] + u * unit_stride_bytes, piece_bytes long: an engine's paged KV
 * cache, l = layer, u = block. Registered once; an item then names {layout, unit}. */
typedef struct cistern_layout {
  uint32_t struct_size;
  uint32_t unit_count;
  void* const* bases; /* copied */
  uint64_t base_count;
  uint64_t unit_stride_bytes;
  uint64_t piece_bytes;
} cistern_layout;

/* Every piece of every unit lies within registered buffers. `*id` is never 0. */
cistern_code cistern_register_layout(cistern_client client, const cistern_layout* layout,
                                     uint32_t* id);
cistern_code cistern_unregister_layout(cistern_client client, uint32_t id);

/* --- Namespaces --------------------------------------------------------------------------------
 */

/* Who checks the digests of what is got: every reader every byte; one chunk in 16, drawn anew each
 * time; none. Whatever readers do not check the store checks once before it first serves it. */
enum { CISTERN_VERIFY_ALWAYS = 0, CISTERN_VERIFY_SAMPLED = 1, CISTERN_VERIFY_OFF = 2 };

#define CISTERN_NAMESPACE_NO_DIGEST 1u /* puts make no digests: nobody can tell flipped bits */
#define CISTERN_NAMESPACE_MUTABLE 2u   /* CISTERN_PUT_REPLACE is allowed; one replica a chunk */
#define CISTERN_NAMESPACE_KEEP_KEYS \
  4u /* the key is kept beside the chunk: list, remove by pattern */

typedef struct cistern_namespace_options {
  uint32_t struct_size;
  uint32_t flags;  /* CISTERN_NAMESPACE_* */
  uint32_t verify; /* CISTERN_VERIFY_* */
  uint32_t reserved;
  uint64_t ttl_us;     /* 0 = chunks do not expire */
  uint64_t part_bytes; /* 0 = min(length, 1 MiB); else a power of two from 4096 to 2^31 */
} cistern_namespace_options;

/* Opens (and creates at first) a namespace. The fingerprint names everything that makes KV bytes
 * interchangeable: weights revision, dtype, layout, block tokens, parallel degree. Both end in 0.
 * FAILED_PRECONDITION: the name is in use with another fingerprint; the message shows both. */
cistern_code cistern_open_namespace(cistern_client client, const char* name,
                                    const char* fingerprint,
                                    const cistern_namespace_options* options,
                                    const cistern_call_options* call, cistern_namespace* ns);
/* Lets go of the handle; the namespace and what is in it stay. Calls under way go on. */
cistern_code cistern_namespace_free(cistern_namespace ns);

typedef struct cistern_namespace_info {
  uint32_t struct_size; /* in: sizeof */
  uint32_t flags;
  cistern_id id;
  uint32_t verify;
  uint32_t reserved;
  uint64_t ttl_us;
  uint64_t part_bytes;
} cistern_namespace_info;

/* The options in force: the first opener's. */
cistern_code cistern_namespace_get_info(cistern_namespace ns, cistern_namespace_info* info);

/* Keys (1 byte to 4 KiB, any bytes) as ids: hashes, no call. `keys` has them one behind the other,
 * `key_bytes` their lengths; `ids` takes `count`. */
cistern_code cistern_hash(cistern_namespace ns, const void* keys, const uint64_t* key_bytes,
                          size_t count, cistern_id* ids);

/* --- Lookup ------------------------------------------------------------------------------------
 */

#define CISTERN_LOOKUP_SPARSE 1u   /* lease every present key, not only the leading run */
#define CISTERN_LOOKUP_NO_LEASE 2u /* lease nothing */

typedef struct cistern_lookup_options {
  uint32_t struct_size;
  uint32_t background;
  uint64_t deadline_us;
  uint64_t lease_us; /* 0 = the pool's default; capped */
  uint32_t flags;    /* CISTERN_LOOKUP_* */
  uint16_t shard_first;
  uint16_t shard_count; /* a key counts only if all its shards are there; 0 = 1 */
} cistern_lookup_options;

#define CISTERN_LEASE_SHORTENED 1u /* the pool's share allowed less than was asked */

typedef struct cistern_lookup_info {
  uint32_t struct_size; /* in: sizeof */
  uint32_t flags;       /* CISTERN_LEASE_SHORTENED */
  uint64_t key_count;
  uint64_t leading_run;   /* keys present from the front */
  uint64_t present_count; /* keys present */
  uint64_t lease_count;   /* 0: nothing is leased */
  uint64_t lease_us;      /* from the answer's making; of the shortest */
} cistern_lookup_info;

/* In a byte of `present`. The other bits are 0 now; they may come to say where a key is. */
#define CISTERN_KEY_PRESENT 1u

/* Which of the keys are there; leases them. `info`, `present` (count bytes) and `lookup` may be
 * NULL: what is not asked for is not made. Without the handle a lease lapses by itself. */
cistern_code cistern_lookup_keys(cistern_namespace ns, const cistern_id* ids, size_t count,
                                 const cistern_lookup_options* options, cistern_lookup_info* info,
                                 uint8_t* present, cistern_lookup* lookup);
/* Takes no lease and marks nothing as used. Of `options` lease and flags are not looked at. */
cistern_code cistern_exists(cistern_namespace ns, const cistern_id* ids, size_t count,
                            const cistern_lookup_options* options, uint8_t* present);
/* Learns where the keys are, so that a get need not ask. No lease. */
cistern_code cistern_prefetch(cistern_namespace ns, const cistern_id* ids, size_t count,
                              const cistern_lookup_options* options);

cistern_code cistern_lookup_get_info(cistern_lookup lookup, cistern_lookup_info* info);
/* `capacity` at least the key count. */
cistern_code cistern_lookup_present(cistern_lookup lookup, uint8_t* present, size_t capacity);
/* The ids that were looked up (an adopted ticket's too). */
cistern_code cistern_lookup_ids(cistern_lookup lookup, cistern_id* ids, size_t capacity);
/* The ticket: bytes with which another process gets without asking the master. Copies at most
 * `capacity` bytes; `*bytes` is its whole length, always written. RESOURCE_EXHAUSTED: it did not
 * fit, and nothing was copied (ask with capacity 0 first). */
cistern_code cistern_lookup_ticket(cistern_lookup lookup, void* out, size_t capacity,
                                   size_t* bytes);
/* Makes another process's lookup usable here, without a call. INVALID_ARGUMENT: not a whole ticket
 * of this namespace (any bytes may be tried). `info` may be NULL. */
cistern_code cistern_adopt(cistern_namespace ns, const void* ticket, size_t bytes,
                           cistern_lookup_info* info, cistern_lookup* lookup);
/* Ends the lookup's leases early. Ones that ended already are no error. The handle stays. */
cistern_code cistern_release(cistern_lookup lookup, const cistern_call_options* options);
/* Lets go of the handle; leases stay until they lapse. */
cistern_code cistern_lookup_free(cistern_lookup lookup);

/* --- Put and get --------------------------------------------------------------------------------
 */

/* Items are an array of which every struct_size is the same. A chunk's bytes are in, or go to, its
 * spans one behind the other (4,096 at most), or unit `unit` of `layout` where that is not 0. */
typedef struct cistern_put_item {
  uint32_t struct_size;
  uint16_t shard;
  uint16_t reserved;
  cistern_id id;
  const cistern_span* spans;
  uint64_t span_count;
  uint32_t layout;
  uint32_t unit;
  const void* key; /* what `id` is the hash of: for namespaces that keep keys, else not looked at */
  uint64_t key_bytes;
} cistern_put_item;

#define CISTERN_GET_ANY_LENGTH 1u /* the target may be longer than the chunk; see result.bytes */

typedef struct cistern_get_item {
  uint32_t struct_size;
  uint16_t shard;
  uint16_t flags; /* CISTERN_GET_* */
  cistern_id id;
  const cistern_span* spans; /* as long as the chunk, or the range, exactly */
  uint64_t span_count;
  uint32_t layout;
  uint32_t unit;
  /* At most one of: a byte range (range_bytes > 0), a run of parts (part_count > 0). */
  uint64_t range_offset;
  uint64_t range_bytes;
  uint32_t first_part;
  uint32_t part_count;
} cistern_get_item;

#define CISTERN_PUT_REPLACE 1u /* mutable namespaces: chunks that are there get the new bytes */
#define CISTERN_PUT_WAIT_VISIBLE 2u /* return when lookups see it */

typedef struct cistern_put_options {
  uint32_t struct_size;
  uint32_t background;
  uint64_t deadline_us;
  uint32_t flags; /* CISTERN_PUT_* */
  uint32_t reserved;
  uint64_t part_bytes;     /* 0 = the namespace's */
  uint64_t expiry_unix_us; /* since 1970; 0 = never */
  uint64_t affinity;       /* chunks read together share it; 0 = from the first key */
} cistern_put_options;

enum { CISTERN_ORDER_BY_CHUNK = 0, CISTERN_ORDER_BY_PART = 1 };

typedef struct cistern_get_options {
  uint32_t struct_size;
  uint32_t background;
  uint64_t deadline_us;
  uint32_t order; /* CISTERN_ORDER_*: BY_PART: part i of every chunk before part i + 1 of any */
  uint32_t reserved;
} cistern_get_options;

/* `results` takes `count` entries, written whatever the code. CISTERN_OK: every chunk has an answer
 * of its own, misses and refusals included; the message is about the first failure that needs
 * words. Else the call as a whole could not be tried, or was cancelled.
 *
 * A chunk that was put is got and looked up by this client at once; others see it some milliseconds
 * later, and until then a second put of it may be answered IN_PROGRESS. CISTERN_PUT_WAIT_VISIBLE
 * waits for that. */
cistern_code cistern_put(cistern_namespace ns, const cistern_put_item* items, size_t count,
                         const cistern_put_options* options, cistern_chunk_result* results);
cistern_code cistern_get(cistern_namespace ns, const cistern_get_item* items, size_t count,
                         const cistern_get_options* options, cistern_chunk_result* results);

/* --- Asynchronous calls --------------------------------------------------------------------------
 */

/* These return at once. Items, spans, keys and ids are copied; only the memory they name stays in
 * use until the call is done. Bad arguments are refused at once; what else cannot be tried is an op
 * that is done, with its error. */
cistern_code cistern_lookup_async(cistern_namespace ns, const cistern_id* ids, size_t count,
                                  const cistern_lookup_options* options, cistern_op* op);
cistern_code cistern_put_async(cistern_namespace ns, const cistern_put_item* items, size_t count,
                               const cistern_put_options* options, cistern_op* op);
cistern_code cistern_get_async(cistern_namespace ns, const cistern_get_item* items, size_t count,
                               const cistern_get_options* options, cistern_op* op);

/* OK: done. IN_PROGRESS: not yet when `timeout_us` had passed (0 = only look; less than 0 = as long
 * as it takes, which the call's deadline bounds). The thread does I/O meanwhile. */
cistern_code cistern_op_wait(cistern_op op, int64_t timeout_us);
/* A descriptor that becomes readable when it is done; belongs to the op, do not close it. One epoll
 * over many of them is one descriptor for all. RESOURCE_EXHAUSTED: the system has no more. */
cistern_code cistern_op_eventfd(cistern_op op, int* fd);
/* Asks the call to end early; it still has to be waited for. */
cistern_code cistern_op_cancel(cistern_op op);
/* The result of a put or get; waits for it. Answers what cistern_put or cistern_get would have, and
 * writes `results` (capacity: at least the item count, else INVALID_ARGUMENT and nothing is taken).
 * Once: afterwards FAILED_PRECONDITION. The op still has to be freed. */
cistern_code cistern_op_results(cistern_op op, cistern_chunk_result* results, size_t capacity);
/* The same of a lookup; arguments as in cistern_lookup_keys. */
cistern_code cistern_op_lookup(cistern_op op, cistern_lookup_info* info, uint8_t* present,
                               size_t present_capacity, cistern_lookup* lookup);
/* Cancels the call if it is not done, waits for its quiet end, frees it. */
cistern_code cistern_op_free(cistern_op op);

/* How far a get by part has come, so that an engine starts on the first layers while others arrive.
 * In place means: in the caller's memory and held to its digest wherever the get checks digests. It
 * stays so. A chunk that has failed holds the others up no longer. A part that a chunk does not
 * have or its item does not ask for is in place from the beginning. */
#define CISTERN_ALL_PARTS 0xFFFFFFFFu

typedef struct cistern_missed_chunk {
  uint32_t item;
  cistern_code code;
  uint32_t parts_done; /* parts from its front that are in place all the same */
  uint32_t reserved;
} cistern_missed_chunk;

/* Parts before `*parts` are in place in every chunk that has not failed; CISTERN_ALL_PARTS once
 * that is so of all. Never blocks. INVALID_ARGUMENT here and below: the op is no get. */
cistern_code cistern_op_parts_done(cistern_op op, uint32_t* parts);
/* OK: every chunk that has such a part has it in place. NOT_FOUND: so has every chunk but those of
 * cistern_op_missed whose parts_done is not beyond it. IN_PROGRESS: not yet. */
cistern_code cistern_op_wait_part(cistern_op op, uint32_t part, int64_t timeout_us);
/* The chunks that have failed for good, in the order in which that was known. Copies the first
 * `capacity`; `*count` is how many there are. */
cistern_code cistern_op_missed(cistern_op op, cistern_missed_chunk* out, size_t capacity,
                               size_t* count);
/* An eventfd that becomes readable whenever one of the two above has grown: read() 8 bytes, then
 * ask. Belongs to the op. */
cistern_code cistern_op_part_eventfd(cistern_op op, int* fd);

/* --- Removing and listing
 * ------------------------------------------------------------------------- */

#define CISTERN_REMOVE_FORCE 1u /* leased and pinned ones too */

typedef struct cistern_remove_options {
  uint32_t struct_size;
  uint32_t background;
  uint64_t deadline_us;
  uint32_t flags; /* CISTERN_REMOVE_* */
  uint16_t shard_first;
  uint16_t shard_count; /* 0 = 1 */
} cistern_remove_options;

/* Returns when the stores have freed them. `results` takes count * shard_count entries, key by key:
 * OK, NOT_FOUND, FAILED_PRECONDITION (leased, pinned). */
cistern_code cistern_remove(cistern_namespace ns, const cistern_id* ids, size_t count,
                            const cistern_remove_options* options, cistern_chunk_result* results);
/* Every chunk of the namespace, each acknowledged put before included; what is leased or pinned
 * stays unless forced. `removed` may be NULL. */
cistern_code cistern_remove_all(cistern_namespace ns, const cistern_remove_options* options,
                                uint64_t* removed);

typedef struct cistern_match_removal {
  uint32_t struct_size; /* in: sizeof */
  uint32_t unreachable_stores;
  uint64_t matched;
  uint64_t removed;
  uint64_t refused; /* leased or pinned and not forced */
  uint64_t failed;  /* not answered in time, or its store was lost */
} cistern_match_removal;

/* Namespaces that keep keys, else FAILED_PRECONDITION: removes every chunk whose key matches, as in
 * cistern_list_keys. What was removed before an error stays removed. `removal` may be NULL. */
cistern_code cistern_remove_matching(cistern_namespace ns, const void* pattern,
                                     size_t pattern_bytes, const cistern_remove_options* options,
                                     cistern_match_removal* removal);

typedef struct cistern_list_options {
  uint32_t struct_size;
  uint32_t background;
  uint64_t deadline_us;
  const void* cursor; /* cistern_key_page_next of the page before; NULL = from the start */
  uint64_t cursor_bytes;
  uint64_t max_keys; /* about so many a page; 0 = 1,000 */
} cistern_list_options;

/* One page of the chunks whose key matches `pattern`: RE2 syntax over bytes, found anywhere in the
 * key (anchor with ^ and $); empty = all; 1,024 bytes at most. In no order. INVALID_ARGUMENT: the
 * pattern, with the reason; RESOURCE_EXHAUSTED: it takes a store too long; ABORTED: a store has
 * restarted: list from the start. */
cistern_code cistern_list_keys(cistern_namespace ns, const void* pattern, size_t pattern_bytes,
                               const cistern_list_options* options, cistern_key_page* page);

typedef struct cistern_key_page_info {
  uint32_t struct_size;        /* in: sizeof */
  uint32_t unreachable_stores; /* did not answer: what they hold is not listed */
  uint64_t key_count;
  uint64_t cursor_bytes; /* 0: this was the last page. A page may be empty before that */
} cistern_key_page_info;

typedef struct cistern_listed_key {
  uint32_t struct_size; /* in: sizeof */
  uint32_t shard;
  cistern_id id;
  const void* key; /* the page's: valid until it is freed */
  uint64_t key_bytes;
  uint64_t bytes; /* the chunk's length */
} cistern_listed_key;

cistern_code cistern_key_page_get_info(cistern_key_page page, cistern_key_page_info* info);
/* INVALID_ARGUMENT: there is no such `index`. */
cistern_code cistern_key_page_key(cistern_key_page page, size_t index, cistern_listed_key* key);
/* Copies the cursor: `capacity` at least cursor_bytes. */
cistern_code cistern_key_page_next(cistern_key_page page, void* cursor, size_t capacity);
cistern_code cistern_key_page_free(cistern_key_page page);

#ifdef __cplusplus
}
#endif

#endif /* CISTERN_CLIENT_CISTERN_H_ */
