// SPDX-License-Identifier: Apache-2.0
// Jobs as in the trace of Salus (MLSys 2020): 1, 5 and 10 minutes of training each on a P100, the
// long ones rather early. That trace was never published; its Table 1 was, and the default seed
// gives its FIFO row to 0.2 %. The same numbers come out on every machine.
#pragma once

#include <cstdint>

#include "bench/sched/replay/jobs.h"

namespace gpushare::replay {

// SplitMix64 (public domain, S. Vigna): the next number, and a fraction from 0 to below 1 of its
// upper 53 bits.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next();
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

struct Generator {
  uint32_t n = 100, long_jobs = 19, mid_jobs = 8;
  double span_min = 51;  // in which all arrive
  double bias = 3;       // the larger, the earlier come the long ones
  uint64_t seed = 3117;
};

// First n fractions x span, sorted: the arrivals. Then, for each in order, one fraction u: its key
// is -ln(u) x e^(bias x arrival / span). The smallest keys are the jobs of 10 minutes, the next
// those of 5, all others are of 1. Arrivals are rounded to 0.01 minutes. Models go round robin
// through those that Salus trained; the number of iterations follows from the model's rate.
Jobs generate(const Generator& generator);

// Makes every length up to `percent` longer or shorter, by one fraction a job of its own seed.
void jitter(Jobs& jobs, double percent, uint64_t seed);

}  // namespace gpushare::replay
