// SPDX-License-Identifier: Apache-2.0
// LoneContext: how busy a process is while it has the GPU to itself. The switch log says nothing
// then: a context alone stays resident, busy or idle. What is left is the driver's utilisation
// sample, once a second, of a second that ended up to a second ago. So the use of a lone process is
// known to a few percent of a second, to a third while it is being frozen, and late: one that turns
// busy is charged too little for up to 2 s, one that turns idle is charged on for up to 3 s. Of two
// samples the larger counts, and without samples it counts as busy, so that a cap bites. Pure.
#pragma once

#include <algorithm>

#include "shmctl/base/clock.h"

namespace gpushare {

class LoneContext {
 public:
  // A sample of a process of this age. `thawed` is the part of the last second in which it could
  // run at all: what it did is scaled up to what it would do if let.
  //   Example: capped at 30 % and saturating it is sampled at 0.27 with thawed = 0.3: 0.9, full.
  void sample(double sm_fraction, double thawed, Nanos age, Time now) {
    if (age < kFirstSample) return;  // part of that second was before it began
    double busy = thawed > kMinThawed ? std::min(1.0, sm_fraction / thawed) : 1.0;
    if (busy >= (thawed < 1 ? kSaturatedThawed : kSaturated)) busy = 1.0;
    if (busy < kIdle) busy = 0.0;
    rate_ = std::max(busy, latest_);
    latest_ = busy;
    sampled_ = now;
  }

  // Part of its residence that counts as use.
  double rate(Time now) const { return now - sampled_ < kStale ? rate_ : 1.0; }

 private:
  static constexpr double kMinThawed = 0.05, kIdle = 0.01;
  // A saturating program is reported a little under 1: the driver counts whole sample points.
  static constexpr double kSaturated = 0.9, kSaturatedThawed = 0.7;
  static constexpr Nanos kFirstSample = std::chrono::milliseconds(2500),
                         kStale = std::chrono::seconds(3);

  double rate_ = 1, latest_ = 1;
  Time sampled_{};
};

}  // namespace gpushare
