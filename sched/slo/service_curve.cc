// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/service_curve.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace gpushare {
namespace {

constexpr double kOtherWork =
    0.10;                        // a measurement that is off by more means other work, not noise
constexpr double kFollow = 0.5;  // weight of a new measurement in the mean
constexpr double kMostLoad = 0.95;
constexpr uint32_t kOld = 5;  // a point is old after so many observations
// 30 blocks take twice as long on 15 places as on 30, and three times as long on 14.
constexpr double kWaves = 2;

// Returns the value at `groups` of the curve a + b / groups through two points; at least `floor`.
double through(uint32_t g1, double s1, uint32_t g2, double s2, uint32_t groups, double floor) {
  const double b = (s1 - s2) / (1.0 / g1 - 1.0 / g2);
  const double a = s1 - b / g1;
  return std::max(a + b / groups, floor);
}

}  // namespace

void ServiceCurve::observe(uint32_t groups, double seconds) {
  assert(groups >= 1 && groups <= kMostGroups && seconds > 0);
  ++observations_;
  for (uint32_t g = 1; g < groups; ++g)
    if (is_scaled_[g] && observations_ - scaled_at_ > kOld) forget(g);
  if (is_known() && (measured_[groups] > 0 || is_between(groups))) {
    const double expected = this->seconds(groups);
    const double off = seconds / expected;
    const bool is_other_work = off > 1 + kOtherWork || off < 1 / (1 + kOtherWork);
    if (is_other_work && measured_[groups] > 0) scale(off);
  }
  is_scaled_[groups] = false;
  if (measured_[groups] == 0) {
    ++points_;
    measured_[groups] = seconds;
  } else {
    measured_[groups] += (seconds - measured_[groups]) * kFollow;
  }
  // With more SMs work never takes longer, and with fewer little more than in proportion: a
  // measurement that says otherwise is noise, or old.
  const double here = measured_[groups];
  for (uint32_t g = 1; g <= kMostGroups; ++g) {
    if (measured_[g] == 0 || g == groups) continue;
    const double in_proportion = here * groups / g;
    measured_[g] = g < groups ? std::clamp(measured_[g], here, in_proportion * kWaves)
                              : std::clamp(measured_[g], in_proportion / kWaves, here);
  }
}

void ServiceCurve::scale(double by) {
  for (uint32_t g = 1; g <= kMostGroups; ++g) {
    measured_[g] *= by;
    is_scaled_[g] = measured_[g] > 0;
  }
  scaled_at_ = observations_;
}

void ServiceCurve::forget(uint32_t groups) {
  if (measured_[groups] > 0) --points_;
  measured_[groups] = 0;
  is_scaled_[groups] = false;
}

bool ServiceCurve::is_between(uint32_t groups) const {
  const auto is_measured = [](double point) { return point > 0; };
  const auto middle = measured_.begin() + groups;
  return std::any_of(measured_.begin(), middle + 1, is_measured) &&
         std::any_of(middle, measured_.end(), is_measured);
}

double ServiceCurve::seconds(uint32_t groups) const {
  assert(is_known());
  uint32_t below = 0, above = 0, next_below = 0;
  for (uint32_t g = 1; g <= kMostGroups; ++g) {
    if (measured_[g] == 0) continue;
    if (g <= groups) {
      next_below = below;
      below = g;
    } else if (above == 0) {
      above = g;
    }
  }
  if (below == groups) return measured_[groups];
  if (below == 0) return measured_[above] * above / groups;
  if (above != 0)
    return through(below, measured_[below], above, measured_[above], groups, measured_[above]);
  const double best = measured_[below] * below / groups;
  if (next_below == 0) return best;
  return through(next_below, measured_[next_below], below, measured_[below], groups, best);
}

double ServiceCurve::likely_seconds(uint32_t groups) const {
  const auto lowest = std::ranges::find_if(measured_, [](double point) { return point > 0; });
  const auto at = static_cast<uint32_t>(lowest - measured_.begin());
  return groups < at ? *lowest * std::sqrt(static_cast<double>(at) / groups) : seconds(groups);
}

double response_seconds(double service, double rate) {
  const double load = service * rate;
  if (load >= kMostLoad) return std::numeric_limits<double>::infinity();
  return service + load * service / (2 * (1 - load));
}

}  // namespace gpushare
