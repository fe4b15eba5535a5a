// SPDX-License-Identifier: Apache-2.0
// UserBudget: how often each user may cause what costs its caller time, so that one user's flood
// takes nothing from others. A token bucket for each user, kept as the instant at which it is full
// again (the generic cell rate algorithm). Pure; not thread-safe.
//   every 10 ms, burst 100: a user takes 100 at once, and then one each 10 ms.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <map>

#include "shmctl/base/clock.h"

namespace gpushare {

class UserBudget {
 public:
  // Users whose buckets are remembered. Whoever has more user ids than this, of a subordinate range
  // for instance, gets new bursts: the caller bounds what all users together cost.
  static constexpr std::size_t kMostUsers = 1024;

  // REQUIRES: every > 0, burst >= 1.
  UserBudget(Nanos every, uint32_t burst) : every_(every), depth_(every * burst) {}

  // Takes one of the user's; false: it has none left at `now`.
  bool take(uid_t user, Time now) {
    if (full_at_.size() >= kMostUsers && !full_at_.contains(user)) forget(now);
    Time& full_at = full_at_[user];
    const Time next = std::max(full_at, now) + every_;
    if (next > now + depth_) return false;
    full_at = next;
    return true;
  }

 private:
  void forget(Time now) {
    std::erase_if(full_at_, [&](const auto& entry) { return entry.second <= now; });
    if (full_at_.size() >= kMostUsers) full_at_.clear();
  }

  const Nanos every_, depth_;
  std::map<uid_t, Time> full_at_;
};

}  // namespace gpushare
