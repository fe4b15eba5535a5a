// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/targets.h"

#include <algorithm>

namespace gpushare {
namespace {

constexpr double kLongestSwitchSeconds = 100e-6;

// Divides `left` among the saturating claims of one class; returns what the caps leave over.
double divide_class(std::span<const DemoClaim> claims, Priority priority, double left,
                    std::vector<double>& shares) {
  std::vector<size_t> open;
  for (size_t i = 0; i < claims.size(); ++i)
    if (claims[i].priority == priority && !claims[i].used) open.push_back(i);
  while (!open.empty()) {
    double weight = 0;
    for (size_t i : open) weight += claims[i].weight;
    const double per_weight = left / weight;
    const auto is_capped = [&](size_t i) { return claims[i].weight * per_weight > claims[i].cap; };
    if (std::ranges::none_of(open, is_capped)) {
      for (size_t i : open) shares[i] = claims[i].weight * per_weight;
      return 0;
    }
    for (size_t i : open)
      if (is_capped(i)) shares[i] = claims[i].cap;
    const auto done = std::ranges::partition(open, [&](size_t i) { return !is_capped(i); });
    for (size_t i : done) left -= shares[i];
    open.erase(done.begin(), done.end());
  }
  return left;
}

}  // namespace

std::vector<double> target_shares(std::span<const DemoClaim> claims, double switching) {
  std::vector<double> shares(claims.size());
  double left = 1 - switching;
  for (size_t i = 0; i < claims.size(); ++i) {
    if (!claims[i].used) continue;
    shares[i] = *claims[i].used;
    left -= shares[i];
  }
  left = std::max(left, 0.0);
  for (const Priority priority : {Priority::kHigh, Priority::kNormal, Priority::kIdle})
    left = divide_class(claims, priority, left, shares);
  return shares;
}

double switching_share(double switches_per_s, double unused) {
  return std::clamp(unused, 0.0, switches_per_s * kLongestSwitchSeconds);
}

}  // namespace gpushare
