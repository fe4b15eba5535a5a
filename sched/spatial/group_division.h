// SPDX-License-Identifier: Apache-2.0
// Division of whole SM groups. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gpushare {

// Divides `total` in proportion to `demands`, by largest remainder. Each gets at least `least`;
// when there is not enough for that, the last ones get less. The sum is `total` unless there are no
// demands. Of two that are alike the earlier one gets the next group.
std::vector<uint32_t> divide_in_proportion(uint32_t total, std::span<const uint32_t> demands,
                                           uint32_t least);
// The same with a least for each of them.
std::vector<uint32_t> divide_in_proportion(uint32_t total, std::span<const uint32_t> demands,
                                           std::span<const uint32_t> least);

struct GroupDemand {
  uint32_t groups = 0;
  uint32_t heads = 1;  // tenants that it is for, together; at least 1

  bool operator==(const GroupDemand&) const = default;
};

// Max-min fair by head: no claim gets more than it is for, each gets one group before any gets a
// second, and none gets less for each of its heads than another unless it has what it is for.
// Groups that are left when all are even go to the earlier demands.
//   10 groups, demands 2 9 6 -> 2 4 4
std::vector<uint32_t> divide_max_min(uint32_t total, std::span<const GroupDemand> demands);

}  // namespace gpushare
