// Batches of the C interface as those of the C++ one, and their results back.
#ifndef CISTERN_CLIENT_C_BATCHES_H_
#define CISTERN_CLIENT_C_BATCHES_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "client/c/objects.h"
#include "client/cistern.h"
#include "client/client.h"

namespace cistern::c {

absl::StatusOr<PutOptions> FromC(const cistern_put_options* options);
absl::StatusOr<GetOptions> FromC(const cistern_get_options* options);

// Copies items and spans; `own_keys`: keys too. InvalidArgument: a null pointer, a struct's size,
// too many spans; names the item.
absl::StatusOr<Batch<PutItem>> FromC(const cistern_put_item* items, size_t count, bool own_keys);
absl::StatusOr<Batch<GetItem>> FromC(const cistern_get_item* items, size_t count);

// A code for every entry.
void FillResults(cistern_code code, size_t count, cistern_chunk_result* results);
// Writes `count` results, and the message. `result` has as many items, or an error and none.
cistern_code AnswerBatch(const BatchResult& result, size_t count, cistern_chunk_result* results);

}  // namespace cistern::c

#endif  // CISTERN_CLIENT_C_BATCHES_H_
