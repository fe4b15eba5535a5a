// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/group_division.h"

#include <algorithm>
#include <numeric>

namespace gpushare {

std::vector<uint32_t> divide_in_proportion(uint32_t total, std::span<const uint32_t> demands,
                                           uint32_t least) {
  return divide_in_proportion(total, demands, std::vector<uint32_t>(demands.size(), least));
}

std::vector<uint32_t> divide_in_proportion(uint32_t total, std::span<const uint32_t> demands,
                                           std::span<const uint32_t> least) {
  std::vector<uint32_t> shares(demands.size(), 0);
  uint32_t left = total;
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i] = std::min(least[i], left);
    left -= shares[i];
  }
  // Each group goes to the demand that is furthest below its part: there are at most 64 groups.
  const uint64_t sum = std::accumulate(demands.begin(), demands.end(), uint64_t{0});
  while (left > 0 && !demands.empty()) {
    size_t neediest = 0;
    double most = -1e300;
    for (size_t i = 0; i < demands.size(); ++i) {
      const double part = sum == 0 ? 1.0 / static_cast<double>(demands.size())
                                   : static_cast<double>(demands[i]) / static_cast<double>(sum);
      const double missing = part * total - shares[i];
      if (missing > most + 1e-9) {
        most = missing;
        neediest = i;
      }
    }
    ++shares[neediest];
    --left;
  }
  return shares;
}

std::vector<uint32_t> divide_max_min(uint32_t total, std::span<const GroupDemand> demands) {
  std::vector<uint32_t> shares(demands.size(), 0);
  // With its next group, by head.
  const auto next = [&](size_t i) {
    return shares[i] == 0 ? 0 : (shares[i] + 1.0) / demands[i].heads;
  };
  for (uint32_t left = total; left > 0; --left) {
    size_t poorest = demands.size();
    for (size_t i = 0; i < demands.size(); ++i) {
      if (shares[i] < demands[i].groups && (poorest == demands.size() || next(i) < next(poorest)))
        poorest = i;
    }
    if (poorest == demands.size()) break;
    ++shares[poorest];
  }
  return shares;
}

}  // namespace gpushare
