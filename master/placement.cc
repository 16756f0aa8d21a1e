#include "master/placement.h"

#include <algorithm>

namespace cistern::master {
namespace {

using Candidates = absl::Span<const PlacementCandidate>;

// The best by `value`, where one on the client's host wins from 0.9 of the best on.
template <typename Value>
const PlacementCandidate* Best(Candidates candidates, const std::vector<PlacementRun>& taken,
                               Value value) {
  const PlacementCandidate* best = nullptr;
  const PlacementCandidate* local = nullptr;
  for (const PlacementCandidate& c : candidates) {
    const bool used = std::any_of(taken.begin(), taken.end(),
                                  [&c](const PlacementRun& run) { return run.store == c.store; });
    if (used) continue;
    if (best == nullptr || value(c) > value(*best)) best = &c;
    if (c.same_host && (local == nullptr || value(c) > value(*local))) local = &c;
  }
  if (local != nullptr && value(*local) >= 0.9 * value(*best)) return local;
  return best;
}

}  // namespace

bool PlacementPolicy::FollowsAncestor(const PlacementRequest& request, Candidates candidates) {
  if (request.ancestor.value == StoreIndex::kNone) return false;
  if (request.present_chunks * 2 < request.chain_chunks) return false;
  absl::Duration oldest;
  const PlacementCandidate* ancestor = nullptr;
  for (const PlacementCandidate& c : candidates) {
    oldest = std::max(oldest, c.oldest_age);
    if (c.store == request.ancestor) ancestor = &c;
  }
  return ancestor != nullptr && 2 * ancestor->oldest_age >= oldest;
}

std::vector<PlacementRun> PlacementPolicy::Choose(const PlacementRequest& request,
                                                  Candidates candidates) {
  std::vector<PlacementRun> runs;
  const size_t width = request.absent_bytes > kWideBytes ? 4 : 2;
  uint64_t left = request.absent_bytes;
  bool follow = FollowsAncestor(request, candidates);
  while (left > 0 && runs.size() < width) {
    const PlacementCandidate* choice = nullptr;
    if (follow) {
      choice = std::find_if(candidates.begin(), candidates.end(),
                            [&](const auto& c) { return c.store == request.ancestor; });
      follow = false;
    } else {
      choice =
          Best(candidates, runs, [](const auto& c) { return static_cast<double>(c.free_bytes); });
      if (choice != nullptr && choice->free_bytes == 0) {
        choice = Best(candidates, runs,
                      [](const auto& c) { return absl::ToDoubleSeconds(c.oldest_age); });
      }
    }
    if (choice == nullptr) break;
    // An even share of what is left, or a sixteenth of the store if that is more.
    const uint64_t even = (left + width - runs.size() - 1) / (width - runs.size());
    uint64_t bytes = std::min(left, std::max(even, choice->capacity_bytes / kRunShare));
    if (runs.size() + 1 == width) bytes = left;
    runs.push_back({choice->store, bytes});
    left -= bytes;
  }
  if (!runs.empty()) runs.back().bytes += left;
  return runs;
}

}  // namespace cistern::master
