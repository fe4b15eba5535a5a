// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/shares.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace gpushare {

void divide(double total, std::span<const Claim> claims, std::span<double> shares) {
  assert(claims.size() == shares.size());
  std::vector<uint32_t> order(claims.size());
  std::iota(order.begin(), order.end(), 0U);
  // Who reaches its ceiling first, while the share per weight rises from 0, comes first.
  std::ranges::sort(order, {}, [claims](uint32_t i) {
    return std::pair(claims[i].ceiling / claims[i].weight, i);
  });
  std::vector<double> weight_from(claims.size() + 1, 0.0);  // of this one and all after it
  for (size_t n = order.size(); n > 0; --n) {
    weight_from[n - 1] = weight_from[n] + claims[order[n - 1]].weight;
  }
  double left = total;
  for (size_t n = 0; n < order.size(); ++n) {
    const Claim& claim = claims[order[n]];
    const double by_weight = left * (claim.weight / weight_from[n]);
    shares[order[n]] = std::min(by_weight, claim.ceiling);
    left -= shares[order[n]];
  }
}

}  // namespace gpushare
