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
  ArrivalRate() = default;
  // From now on; `count`: there were before.
  ArrivalRate(Time now, uint64_t count) : since_(now), counted_(count) {}

  // `count`: of all, never less than before.
  double look(Time now, uint64_t count) {
    const double seconds = static_cast<double>((now - since_).count()) * 1e-9;
    if (seconds <= 0) return rate_;
    const auto came = static_cast<double>(count - counted_);
    // Of a Poisson distribution the standard deviation is the root of the mean.
    const double off = kSurprise * std::sqrt(came);
    const double least = std::max(came - off, 0.0) / seconds, most = (came + off + 1) / seconds;
    const bool is_surprise = rate_ < least || rate_ > most;
    const double part = !is_known_ || is_surprise ? 1 : kFollow;
    if (came >= kEnough) {
      rate_ += (came / seconds - rate_) * part;
      is_known_ = true;
      since_ = now;
      counted_ = count;
    } else {
      rate_ = is_known_ ? std::clamp(rate_, least, most) : came / seconds;
    }
    return rate_;
  }

 private:
  static constexpr double kEnough = 8, kSurprise = 3, kFollow = 0.25;

  Time since_{};
  uint64_t counted_ = 0;
  double rate_ = 0;
  bool is_known_ = false;
};

}  // namespace gpushare
