// SPDX-License-Identifier: Apache-2.0
// Lockstep: at which iteration each process of a job is to stop so that all stop at the same one.
// Processes that work together (the ranks of a training) count their iterations from different
// beginnings, because the recogniser learns at its own speed in each. While they run, the
// difference of their counts is the same but for one that is just a little ahead; the difference
// seen most often in the last kSeen looks is taken for the true one. Pure; one thread.
//   counts 105, 98 and 104, 98 are seen, mostly 105, 98: the second is 7 behind the first.
//   To stop at (105, 97): the first waits after 105, the second after 98.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "shmctl/base/process_id.h"

namespace gpushare {

class Lockstep {
 public:
  static constexpr std::size_t kSeen = 32;
  // A process that is further behind than this is not in step, and stops at its next boundary.
  static constexpr uint64_t kMostAhead = 2;

  // Iterations that each process has begun. Those that are missing are forgotten.
  using Counts = std::vector<std::pair<ProcessId, uint64_t>>;  // ascending by process
  void see(const Counts& counts);
  // After how many iterations of each the next one is to wait, in the order of `counts`. At least
  // those that have begun.
  std::vector<uint64_t> stops(const Counts& counts) const;

 private:
  struct Behind {
    std::array<int64_t, kSeen> seen{};
    std::size_t count = 0;
    int64_t usual() const;
  };

  ProcessId first_{};  // that the others are compared with
  std::map<ProcessId, Behind> behind_;
};

}  // namespace gpushare
