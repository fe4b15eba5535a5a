// SPDX-License-Identifier: Apache-2.0
// SloRound: what the processes of one tenant did between two looks at their iterations. Pure.
//
//   SloRound round;
//   round.add(before, now, 1s);  // for each process
//   round.measure().latency;
//
// The time of an iteration that is announced runs from its arrival, or from its begin where
// arrivals are not announced, to its end. That of a recognised one runs from begin to begin less
// what the GPU surely idled: a loop that waits for requests looks like one that takes long, and no
// number of SMs shortens the wait. A process whose numbers cannot be (sums that fell, more
// iterations than a GPU can do, hours for one) does not count in this round.
#pragma once

#include "sched/policy/policy.h"
#include "shmctl/base/clock.h"

namespace gpushare {

// The most iterations or requests a second that are believed: a launch alone takes over 1 us.
inline constexpr double kMostRate = 1e6;

// < 0: unknown. Times in seconds.
struct SloMeasure {
  uint32_t processes = 0;   // that ended an iteration
  uint64_t iterations = 0;  // of all of them
  double latency = -1;      // mean
  double p99 = -1;          // of the slowest process, of its recent past
  double service = -1;      // mean time that the GPU worked on one
  double throughput = -1;   // a second, of all
  double launches = 0;      // mean of an iteration
  ShimSource source = ShimSource::kNone;
  uint32_t confidence = 0;  // permille; of the least sure one
};

class SloRound {
 public:
  // One process, read twice, `length` apart, which is above 0.
  void add(const IterationsView& before, const IterationsView& now, Nanos length);
  SloMeasure measure() const;

 private:
  SloMeasure sum_;
  double latency_ = 0, service_ = 0;  // sums over the iterations
  double throughput_ = 0, launches_ = 0;
  bool is_service_known_ = true;
};

}  // namespace gpushare
