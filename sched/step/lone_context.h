// SPDX-License-Identifier: Apache-2.0
// LoneContext: how busy a process is while it has the GPU to itself. The hardware's switch log says
// nothing then: a context alone stays resident, busy or idle, and no record is written. What is
// left is the driver's own utilisation sample, once a second, of a second that ended up to a second
// ago.
//
// The error of it: a lone process's use is known to the sample's accuracy (a few percent of the
// second; a third while it is being frozen, because the sample and the freezes are not of quite the
// same second) and late. One that turns busy after idling is charged too little for up to 2 s, one
// that turns idle is charged on for up to 3 s. Where it matters the error is to the full side: of
// two samples the larger counts, and without samples a resident process counts as busy, so that a
// cap bites on residence. With two active contexts none of this applies.
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
  static constexpr Nanos kFirstSample{2'500'000'000}, kStale{3'000'000'000};

  double rate_ = 1, latest_ = 1;
  Time sampled_{};
};

}  // namespace gpushare
