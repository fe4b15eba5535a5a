// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/times.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpushare {

Nanos elapsed(Time from, Time to) {
  Nanos::rep difference = 0;
  if (!__builtin_sub_overflow(to.time_since_epoch().count(), from.time_since_epoch().count(),
                              &difference))
    return Nanos(difference);
  return to > from ? Nanos::max() : Nanos::min();
}

Time later(Time from, Nanos by) {
  Nanos::rep sum = 0;
  if (!__builtin_add_overflow(from.time_since_epoch().count(), by.count(), &sum))
    return Time(Nanos(sum));
  return by > Nanos{} ? Time::max() : Time::min();
}

std::string rough_text(Nanos time) {
  const double seconds = std::chrono::duration<double>(time).count();
  if (seconds < 10) return fmt::format("{:.1f} s", std::max(seconds, 0.1));
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  if (seconds < 6000) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.0f} h", seconds / 3600);
}

}  // namespace gpushare
