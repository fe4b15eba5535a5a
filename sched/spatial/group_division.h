// SPDX-License-Identifier: Apache-2.0
// Dividing whole groups among claims. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gpushare {

// `total` divided in proportion to the claims, by largest remainder; every claim gets at least
// `least` (the last ones less, when there is not enough). The sum is `total` unless claims are
// empty. Ties go to the earlier claim.
std::vector<uint32_t> divide_in_proportion(uint32_t total, std::span<const uint32_t> claims,
                                           uint32_t least);

struct GroupClaim {
  uint32_t groups = 0;
  uint32_t heads = 1;  // whose claim it is, together; at least 1

  bool operator==(const GroupClaim&) const = default;
};

// Max-min fair by head: no claim gets more than it is for, each gets one group before any gets a
// second, and none gets less for each of its heads than another unless it has what it is for.
// Groups that are left when all are even go to the earlier claims.
//   10 groups, claims 2 9 6 -> 2 4 4
std::vector<uint32_t> divide_max_min(uint32_t total, std::span<const GroupClaim> claims);

}  // namespace gpushare
