// SPDX-License-Identifier: Apache-2.0
// LoneContext: how busy a process is while it has the GPU to itself. The hardware's switch log says
// nothing then: a context alone stays resident, busy or idle, and no record is written. What is
// left is the driver's own utilisation sample, once a second.
//
// The error of it: a lone process's use is known to the sample's accuracy (a few percent of the
// second) and late. One that turns busy after idling is charged nothing, and one that turns idle is
// charged on, for up to two sample periods (2 s). Without samples a resident process counts as
// busy: a cap then bites on residence, not on work. With two active contexts none of this applies.
#pragma once

#include <algorithm>

#include "shmctl/base/clock.h"

namespace gpushare {

class LoneContext {
 public:
  // A sample of the last second. `thawed` is the part of that second in which the process could run
  // at all: what it did is scaled up to what it would do if let.
  void sample(double sm_fraction, double thawed, Time now) {
    sampled_ = now;
    is_sampled_ = true;
    const double busy = thawed > kMinThawed ? std::min(1.0, sm_fraction / thawed) : 1.0;
    // A saturating program is reported a little under 1 (the driver counts whole sample points).
    rate_ = busy >= kSaturated ? 1.0 : busy < kIdle ? 0.0 : busy;
  }

  // Part of its residence that counts as use.
  double rate(Time now) const {
    const bool is_fresh = is_sampled_ && now - sampled_ < kStale;
    return is_fresh ? rate_ : 1.0;
  }

 private:
  static constexpr double kMinThawed = 0.05, kSaturated = 0.90, kIdle = 0.01;
  static constexpr Nanos kStale{3'000'000'000};

  double rate_ = 1;
  bool is_sampled_ = false;
  Time sampled_{};
};

}  // namespace gpushare
