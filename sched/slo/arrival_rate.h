// SPDX-License-Identifier: Apache-2.0
// ArrivalRate: requests a second, from how many there have been. Requests at random: few of them
// say little, so the rate follows them slowly while they are no surprise, and at once when they
// are. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "shmctl/base/clock.h"

namespace gpushare {

class ArrivalRate {
 public:
  // From now on; `count`: there were before.
  ArrivalRate(Time now, uint64_t count) : since_(now), counted_(count) {}

  // `count`: of all, never less than before. < 0: not known yet.
  double look(Time now, uint64_t count) {
    const double seconds = static_cast<double>((now - since_).count()) * 1e-9;
    const auto came = static_cast<double>(count - counted_);
    const bool is_enough = came >= kEnough && seconds >= kShortest;
    if (!is_enough && (rate_ < 0 || seconds <= 0)) return rate_;
    // Means of which so many are off by two standard deviations, their roots, and no more.
    const double middle = came + 2, off = 2 * std::sqrt(came + 1);
    const double least = (middle - off) / seconds, most = (middle + off) / seconds;
    if (is_enough) {
      const bool is_surprise = rate_ < least || rate_ > most;
      rate_ += (came / seconds - rate_) * (is_surprise ? 1 : kFollow);
      since_ = now;
      counted_ = count;
    } else {
      rate_ = std::clamp(rate_, least, most);
    }
    return rate_;
  }

 private:
  static constexpr double kEnough = 8, kFollow = 0.25;
  static constexpr double kShortest = 0.1;  // seconds

  Time since_{};
  uint64_t counted_ = 0;
  double rate_ = -1;
};

}  // namespace gpushare
