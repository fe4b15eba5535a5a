// SPDX-License-Identifier: Apache-2.0
// ServiceCurve: how long one tenant's iteration takes on each number of SM groups. It learns from
// what was measured where the tenant happened to run, and never tries anything. Pure.
//
// Service time falls with SMs and at most in proportion, so a measured point says something of all
// others: fewer groups take at most `groups / fewer` times as long. The work changes (a longer
// context, a larger batch) and the shape hardly does, so a measurement that does not fit the curve
// scales all of it. A point that is only known by scaling is forgotten after a while if it says
// that fewer groups would be too slow, because a mistake there would never be found out.
#pragma once

#include <array>
#include <cstdint>

namespace gpushare {

class ServiceCurve {
 public:
  static constexpr uint32_t kMostGroups = 64;

  // Mean service time of an epoch on that many groups; groups 1..kMostGroups, seconds > 0.
  void observe(uint32_t groups, double seconds);

  bool is_known() const { return points_ > 0; }
  // On 1..kMostGroups groups; requires is_known(). Between two measured points a + b / groups;
  // below the lowest inversely proportional, which it is at worst; above the highest a + b / groups
  // through the two highest, or with only one inversely proportional, which it is at best.
  double seconds(uint32_t groups) const;
  // The same, but below the lowest as likely as not: half way, by factors, between inversely
  // proportional and no longer than there.
  double likely_seconds(uint32_t groups) const;
  // Whether seconds(groups) rests on a measurement there or at both sides.
  bool is_between(uint32_t groups) const;

 private:
  void scale(double by);
  void forget(uint32_t groups);

  std::array<double, kMostGroups + 1> measured_{};  // 0: not
  std::array<bool, kMostGroups + 1> is_scaled_{};   // and not measured since
  uint32_t scaled_at_ = 0;                          // in observations
  uint32_t observations_ = 0;
  uint32_t points_ = 0;
};

// Mean time from arrival to completion, of requests that arrive at random at `rate` a second and
// take `service` seconds each, one after the other: a queue M/D/1. Infinite from 95 % load on.
double response_seconds(double service, double rate);

}  // namespace gpushare
