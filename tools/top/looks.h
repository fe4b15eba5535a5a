// SPDX-License-Identifier: Apache-2.0
// When gpushare-top looks at the control plane: at an interval, and oftener for a second after a
// change that it made, as the agent shows that only with its next step. Pure; one thread.
#pragma once

#include <algorithm>

#include "shmctl/base/clock.h"

namespace gpushare {

class Looks {
 public:
  static constexpr Nanos kHurry = 100ms, kHurriesFor = 1s;

  explicit Looks(Nanos interval) : interval_(interval) {}

  // The time of the next look; the first is due at once.
  Time next() const { return next_; }
  void looked(Time now) {
    next_ = now + (now < hurries_until_ ? std::min(kHurry, interval_) : interval_);
  }
  void changed(Time now) {
    next_ = now;
    hurries_until_ = now + kHurriesFor;
  }

 private:
  Nanos interval_;
  Time next_{}, hurries_until_{};
};

}  // namespace gpushare
