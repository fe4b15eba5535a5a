// SPDX-License-Identifier: Apache-2.0
// LogLimit: how many lines may be written, so that nobody who can cause one fills the journal. Each
// level has a budget of its own: warnings never keep an error from being written. So has each user,
// of the lines about its processes, which take from that of the level as well but cannot use it up:
// one user's flood hides nobody else's lines. Pure; not thread-safe. Used by the log (log.cc),
// under its lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "shmctl/base/log.h"
#include "shmctl/base/user_budget.h"

namespace gpushare {

class LogLimit {
 public:
  // So many lines of a level at once, and then one each kBetween.
  static constexpr uint32_t kBurst = 200;
  static constexpr Nanos kBetween = std::chrono::milliseconds(100);

  // The same of lines about one user's processes, whatever their level.
  static constexpr uint32_t kUserBurst = 20;
  static constexpr Nanos kUserBetween = std::chrono::seconds(2);

  // `about`: the user of the process that the line is about. nullopt in return: this line is left
  // out. Otherwise it may be written, after so many that were left out since the last one.
  std::optional<uint64_t> admit(LogLevel level, Time now,
                                std::optional<uid_t> about = std::nullopt) {
    const bool is_in_own = !about || of_users_.take(*about, now);
    if (is_in_own && budget_.take(static_cast<uid_t>(level), now))
      return std::exchange(left_out_, 0);
    ++left_out_;
    return std::nullopt;
  }

  // A line that could not be written; admit() counts it among those that were left out.
  void leave_out() { ++left_out_; }

 private:
  UserBudget budget_{kBetween, kBurst};  // a level for a user
  UserBudget of_users_{kUserBetween, kUserBurst};
  uint64_t left_out_ = 0;
};

}  // namespace gpushare
