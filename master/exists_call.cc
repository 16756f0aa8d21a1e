#include <algorithm>

#include "master/calls.h"
#include "master/master_core.h"
#include "master/pool_state.h"

namespace cistern::master {

absl::Status ExistsCall::Prepare() {
  return batch_.Parse(request_.ids(), request_.shard_first(), request_.shard_count());
}

bool ExistsCall::Step(MasterCore& core, MonoTime) {
  PoolState& pool = core.pool();
  if (!started_) {
    started_ = true;
    if (!BeginCall(
            pool, request_.map_version(), request_.ns_ref(),
            [this] { return reply_.mutable_map(); }, &ns_, &status_)) {
      return true;
    }
    reply_.mutable_present()->assign(BitmapBytes(batch_.keys()), '\0');
    ++pool.counters.exists_calls;
  }
  const size_t shards = batch_.shard_count();
  const size_t end = std::min(batch_.keys(), next_key_ + std::max<size_t>(1, kSliceKeys / shards));
  slice_.Find(pool, batch_, ns_, next_key_ * shards, end * shards);
  for (size_t key = next_key_; key < end; ++key) {
    const auto first =
        slice_.entries.begin() + static_cast<std::ptrdiff_t>((key - next_key_) * shards);
    const bool all = std::all_of(first, first + static_cast<std::ptrdiff_t>(shards),
                                 [&pool](EntryIndex e) { return pool.Readable(e); });
    if (all) BitmapSet(reply_.mutable_present(), key);
  }
  next_key_ = end;
  return end == batch_.keys();
}

}  // namespace cistern::master
