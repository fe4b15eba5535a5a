// SPDX-License-Identifier: Apache-2.0
// IterationCounts: what a process has counted of its iterations' times since the last look. The
// process writes that, so it may count what it likes: what is taken of it is bounded, and it only
// ever changes what its own tenant shows. Pure; the agent's one thread.
#pragma once

#include "shmctl/base/clock.h"
#include "shmctl/shim/time_histogram.h"

namespace gpushare {

class IterationCounts {
 public:
  // More in a second are not believed: an iteration has a launch at least, and that takes over a
  // microsecond (docs/measurements.md).
  static constexpr uint64_t kMostInASecond = 1'000'000;

  // What came since the last look, or since `now` at the first one. `said` counts from 0 anew when
  // the process has got another slot. Nothing where it counts faster than a GPU can be launched to;
  // the sum is between what the classes allow.
  TimeHistogram take(const TimeHistogram& said, Time now);

 private:
  TimeHistogram last_;
  Time looked_{};
};

void add(TimeHistogram& sum, const TimeHistogram& more);

}  // namespace gpushare
