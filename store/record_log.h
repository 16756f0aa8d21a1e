// The bounded log of what changed in a store, for its session with the master.
#ifndef CISTERN_STORE_RECORD_LOG_H_
#define CISTERN_STORE_RECORD_LOG_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "proto/store.pb.h"

namespace cistern::store {

// "The store holds this chunk in these tiers at this version": tiers 0 = gone. Applying a record
// twice, or a whole prefix of the log again, changes nothing.
struct Record {
  ChunkName name;
  Version version;
  uint32_t length = 0;
  uint32_t expiry_unix_s = 0;
  uint32_t namespace_index = 0;
  uint8_t tiers = 0;
  uint8_t cause = 0;      // wire::Cause
  uint64_t mutation = 0;  // of a mutable namespace
};
static_assert(sizeof(Record) <= 56);

// Sequence numbers count up by one from 1 for the life of the process. Memory grows with what is
// unacknowledged, to `capacity` records; then the oldest is dropped and a reader that had not taken
// it needs a snapshot.
//
// Thread-safe; a leaf lock (ChunkStore appends while it holds its own).
class RecordLog {
 public:
  explicit RecordLog(size_t capacity);

  // The sequence number given.
  uint64_t Append(const Record& record);

  // Records kept: [first, next).
  struct Range {
    uint64_t first = 0;
    uint64_t next = 0;
  };
  Range range() const;

  // Fills the columns of `out` with up to `max` records from `from_seq` on and returns how many.
  // OutOfRange: some of them were dropped (or were never given out): send a snapshot.
  absl::StatusOr<size_t> Take(uint64_t from_seq, size_t max, wire::Delta* out) const;

  // Every record below `seq` is applied at the master and may be forgotten. Anything beyond what
  // exists is cut to it.
  void Ack(uint64_t seq);

  // Waits until a record with number `seq` exists. False: the time passed first.
  bool WaitFor(uint64_t seq, absl::Duration timeout) const;

  // Records lost to overflow before they were acknowledged.
  uint64_t dropped() const;

 private:
  const Record& AtLocked(uint64_t seq) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GrowLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t capacity_;
  mutable Mutex mutex_;
  mutable CondVar appended_;
  std::vector<Record> ring_ ABSL_GUARDED_BY(mutex_);  // seq at seq % size
  uint64_t first_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Packs records into Delta columns (all but seq_first and new_namespaces; call
// Set once for each position, 0 first). A column that is the
// same for all is sent in its short form.
class DeltaBuilder {
 public:
  DeltaBuilder(size_t count, wire::Delta* out);
  void Set(size_t i, const Record& record);
  void Finish();

 private:
  const size_t count_;
  wire::Delta* const out_;
  bool any_shard_ = false;
  bool any_gone_or_other_tier_ = false;
  bool any_expiry_ = false;
  bool any_mutation_ = false;
  bool one_namespace_ = true;
  bool one_cause_ = true;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_RECORD_LOG_H_
