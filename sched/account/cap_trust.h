// SPDX-License-Identifier: Apache-2.0
// CapTrust: how much a tenant's cap on one GPU believes of the residence that its programs say was
// no use (lone_context.h). A program that lies gains what is believed, so that must be little
// beside the cap: a second's worth of it at first, and a twentieth of it from then on. What is
// beyond that is charged to the cap, as if the program had no shim. Pure.
//   max = "10%": the first 100 ms, then 5 ms a second. A median start on an H200 is resident for
//   103 ms; a program that lies has at most 10.5 % and 100 ms, 11 % over any 20 s.
#pragma once

#include <algorithm>

#include "shmctl/base/clock.h"

namespace gpushare {

class CapTrust {
 public:
  static constexpr Nanos kAtFirst = std::chrono::seconds(1);  // of the cap
  static constexpr double kPart = 0.05;                       // of the cap, later

  // The part of `excused`, of the time since the last call, that is charged to a cap of this part
  // of the GPU.
  Nanos doubted(Nanos excused, double cap, Time now) {
    const auto most = std::chrono::duration_cast<Nanos>(kAtFirst * cap);
    const auto more = std::chrono::duration_cast<Nanos>((now - until_) * cap * kPart);
    left_ = until_ == Time{} ? most : std::min(most, left_ + more);
    until_ = now;
    const Nanos believed = std::min(left_, excused);
    left_ -= believed;
    return excused - believed;
  }

 private:
  Nanos left_{};
  Time until_{};
};

}  // namespace gpushare
