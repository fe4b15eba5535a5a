// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/group_division.h"

#include <algorithm>
#include <numeric>

namespace gpushare {

std::vector<uint32_t> divide_in_proportion(uint32_t total, std::span<const uint32_t> claims,
                                           uint32_t least) {
  std::vector<uint32_t> shares(claims.size(), 0);
  uint32_t left = total;
  for (uint32_t& share : shares) {
    share = std::min(least, left);
    left -= share;
  }
  // Groups one by one to whoever is furthest below its part: at most 64 of them.
  const uint64_t sum = std::accumulate(claims.begin(), claims.end(), uint64_t{0});
  while (left > 0 && !claims.empty()) {
    size_t neediest = 0;
    double most = -1e300;
    for (size_t i = 0; i < claims.size(); ++i) {
      const double part = sum == 0 ? 1.0 / static_cast<double>(claims.size())
                                   : static_cast<double>(claims[i]) / static_cast<double>(sum);
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

std::vector<uint32_t> divide_max_min(uint32_t total, std::span<const GroupClaim> claims) {
  std::vector<uint32_t> shares(claims.size(), 0);
  // With its next group, by head.
  const auto next = [&](size_t i) {
    return shares[i] == 0 ? 0 : (shares[i] + 1.0) / claims[i].heads;
  };
  for (uint32_t left = total; left > 0; --left) {
    size_t poorest = claims.size();
    for (size_t i = 0; i < claims.size(); ++i) {
      if (shares[i] < claims[i].groups && (poorest == claims.size() || next(i) < next(poorest)))
        poorest = i;
    }
    if (poorest == claims.size()) break;
    ++shares[poorest];
  }
  return shares;
}

}  // namespace gpushare
