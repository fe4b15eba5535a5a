// SPDX-License-Identifier: Apache-2.0
// SeenRate: the part of the time in which the GPU holds a process that it works at least, as
// samples have told for certain. Of each span the driver tells how busy the GPU was in all, and the
// log for how long it held whom: if all the others had worked all the time that it held them, this
// one still worked for the rest (division.h). Pure.
#pragma once

#include <algorithm>
#include <array>

#include "shmctl/base/clock.h"

namespace gpushare {

class SeenRate {
 public:
  // What was seen counts for five to ten seconds: the turns of two programs of which one is frozen
  // for its cap now and then meet in all ways meanwhile.
  static constexpr Nanos kHalf = std::chrono::seconds(5);
  // Of less, whole percents of a sample tell little.
  static constexpr Nanos kLeastHeld = std::chrono::milliseconds(20);

  // In a span until then the GPU held it for so long, and it worked for so long of that at least.
  void note(Nanos least, Nanos held, Time until) {
    if (held < kLeastHeld) return;
    if (until - begun_ >= kHalf) {
      rates_ = {until - begun_ >= 2 * kHalf ? 0 : rates_[1], 0};
      begun_ = until;
    }
    const double rate = std::chrono::duration<double>(least) / held;
    rates_[1] = std::max(rates_[1], std::clamp(rate, 0.0, 1.0));
  }

  // 0: it is not known to have worked.
  double least(Time now) const {
    const Nanos age = now - begun_;
    return std::max(age < kHalf ? rates_[0] : 0, age < 2 * kHalf ? rates_[1] : 0);
  }

 private:
  std::array<double, 2> rates_{};  // the most of the older half, and of that which has begun
  Time begun_{};
};

}  // namespace gpushare
