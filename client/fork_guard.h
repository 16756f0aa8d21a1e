// Tells a fork's child from its parent.
//
// Engines fork workers after they connected. A child has none of our threads, and shares the
// sockets with its parent: it must not touch them. So every call first asks whether the process is
// still the one that connected.
#ifndef CISTERN_CLIENT_FORK_GUARD_H_
#define CISTERN_CLIENT_FORK_GUARD_H_

#include <cstdint>

#include "absl/status/status.h"

namespace cistern {

// Immutable: thread-safe. A check is one relaxed load.
class ForkGuard {
 public:
  ForkGuard();
  // True in a child forked since this was made.
  bool Forked() const;
  // FailedPrecondition in a child.
  absl::Status Check() const;

 private:
  uint64_t generation_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_FORK_GUARD_H_
