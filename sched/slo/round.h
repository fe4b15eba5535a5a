// SPDX-License-Identifier: Apache-2.0
// SloRound: what the processes of one tenant have done between two looks at their slots, as the
// policy wants it. Pure.
//
//   SloRound round;
//   round.add(before, now, seconds(1));  // for each process
//   round.measure().latency;
//
// What counts as the time of an iteration: announced, from arrival (else from its begin) to its
// end. Recognised, the time between two begins less what the GPU surely idled: a loop that waits
// for requests looks like one that takes long, and no number of SMs shortens the wait.
//
// A process whose numbers cannot be (sums that fell, more iterations than a GPU can do, hours for
// one) does not count in this round, and so can only harm its own tenant.
#pragma once

#include "sched/slo/reading.h"
#include "shmctl/base/clock.h"

namespace gpushare {

// Iterations or requests a second, whatever a process says; a launch alone takes more than 1 us.
inline constexpr double kMostRate = 1e6;

// < 0: unknown. Times in seconds.
struct SloMeasure {
  uint32_t processes = 0;   // that ended an iteration
  uint64_t iterations = 0;  // of all of them
  double latency = -1;      // mean
  double p99 = -1;          // of the slowest process; what it says of its recent past
  double service = -1;      // mean that the GPU worked on one
  double throughput = -1;   // a second, of all
  double launches = 0;      // mean of an iteration
  ShimSource source = ShimSource::kNone;
  uint32_t confidence = 0;  // permille; of the least sure one
};

class SloRound {
 public:
  // One process, read twice, `length` > 0 apart.
  void add(const SloReading& before, const SloReading& now, Nanos length);
  SloMeasure measure() const;

 private:
  SloMeasure sum_;
  double latency_ = 0, service_ = 0;  // sums over the iterations
  double throughput_ = 0, launches_ = 0;
  bool is_service_known_ = true;
};

}  // namespace gpushare
