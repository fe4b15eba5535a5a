// SPDX-License-Identifier: Apache-2.0
// Backoff: how long to leave a control alone that fails. One failure may be chance; after two in a
// row the control is tried again after a pause, which doubles with each further failure from a
// second to a minute. A success ends it. Pure; time is the caller's.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "shmctl/base/clock.h"

namespace gpushare {

class Backoff {
 public:
  bool may_try(Time now) const { return now >= until_; }
  // The same now. The clock is not asked while nothing has failed.
  bool may_try(const Clock& clock) const { return until_ == Time{} || may_try(clock.now()); }
  // Returns true when the control is left alone for the first time since it last succeeded.
  bool failed(Time now, std::string why) {
    why_ = std::move(why);
    if (++count_ < kBelieved) return false;
    const bool is_first = pause_ == Nanos{};
    pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
    until_ = now + pause_;
    return is_first;
  }
  // Returns true when it had been left alone.
  bool succeeded() { return std::exchange(*this, {}).pause_ != Nanos{}; }
  // What was wrong, and in how many seconds it is tried again; empty while it is not left alone.
  std::string text(Time now) const {
    if (may_try(now)) return {};
    const auto left = std::chrono::ceil<std::chrono::seconds>(until_ - now);
    return "again in " + std::to_string(left.count()) + " s: " + why_;
  }

 private:
  static constexpr int kBelieved = 2;
  static constexpr Nanos kFirstPause = std::chrono::seconds(1);
  static constexpr Nanos kLongestPause = std::chrono::seconds(60);

  int count_ = 0;  // in a row
  Nanos pause_{};  // the last one; zero: none
  Time until_{};
  std::string why_;
};

}  // namespace gpushare
