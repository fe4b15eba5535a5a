// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/shares.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace gpushare {

void divide(double total, std::span<const Demand> demands, std::span<double> shares) {
  assert(demands.size() == shares.size());
  std::vector<uint32_t> order(demands.size());
  std::iota(order.begin(), order.end(), 0U);
  // In the order in which they reach their ceilings while the share per weight rises from 0.
  std::ranges::sort(order, {}, [demands](uint32_t i) {
    return std::pair(demands[i].ceiling / demands[i].weight, i);
  });
  std::vector<double> weight_from(demands.size() + 1, 0.0);  // of this one and all after it
  for (size_t n = order.size(); n > 0; --n) {
    weight_from[n - 1] = weight_from[n] + demands[order[n - 1]].weight;
  }
  double left = total;
  for (size_t n = 0; n < order.size(); ++n) {
    const Demand& demand = demands[order[n]];
    const double by_weight = left * (demand.weight / weight_from[n]);
    shares[order[n]] = std::min(by_weight, demand.ceiling);
    left -= shares[order[n]];
  }
}

}  // namespace gpushare
