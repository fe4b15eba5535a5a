// SPDX-License-Identifier: Apache-2.0
// Gaps: how long a GPU was left between two jobs, from the instant at which the last thread of one
// stood at its boundary to the instant at which the next one began its first iteration, both by the
// programs' own clock readings. The newest kKept are kept. Pure; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "shmctl/base/clock.h"

namespace gpushare {

class Gaps {
 public:
  static constexpr std::size_t kKept = 512;

  // One below zero (the next job began before the last one stood) counts as zero.
  void add(Nanos gap) { kept_[count_++ % kKept] = std::max(gap, Nanos{}); }
  // Of a hand-over whose gap could not be seen.
  void miss() { ++missed_; }

  uint64_t count() const { return count_; }    // since the agent started
  uint64_t missed() const { return missed_; }  // besides
  // The smallest gap that `permille` of those kept do not exceed; 0: there is none.
  Nanos at(uint32_t permille) const {
    const std::size_t n = std::min<std::size_t>(count_, kKept);
    if (n == 0) return {};
    std::array<Nanos, kKept> sorted = kept_;
    const std::size_t rank = std::min(n - 1, n * permille / 1000);
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(rank),
                     sorted.begin() + static_cast<int64_t>(n));
    return sorted[rank];
  }

 private:
  std::array<Nanos, kKept> kept_{};
  uint64_t count_ = 0, missed_ = 0;
};

}  // namespace gpushare
