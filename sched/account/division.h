// SPDX-License-Identifier: Apache-2.0
// Division: whose use it was that the GPU was busy while no turn in the switch log says so. Several
// processes may have been alone in the span of one sample, one after the other, and the driver only
// knows the sum, and gives its look at the GPU to one of those that are still there:
//   1. who is listed, as far as that says;
//   2. then who is not listed, and may have ended since, as far as it was taken to be busy;
//   3. then all, as far as they were there.
// Pure.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "sched/account/scaled.h"

namespace gpushare {

struct Claim {
  Nanos alone{};                  // it was there alone for so long
  Nanos presumed{};               // and taken to be busy for so much of that
  std::optional<Nanos> listed{};  // the driver says that it was busy for so long
  Nanos used{};                   // what it is given
};

// Gives all of `busy` to them, as far as they were there.
inline void divide(Nanos busy, std::span<Claim> claims) {
  const auto give = [&](auto&& most) {
    Nanos all{};
    for (const Claim& claim : claims) all += most(claim);
    if (all <= Nanos{} || busy <= Nanos{}) return;
    const Nanos given = std::min(busy, all);
    const double part = static_cast<double>(given.count()) / static_cast<double>(all.count());
    for (Claim& claim : claims) {
      const Nanos more = given == all ? most(claim) : scaled(most(claim), part);
      claim.used += more;
      busy -= more;
    }
  };
  give([](const Claim& claim) { return std::min(claim.listed.value_or(Nanos{}), claim.alone); });
  give([](const Claim& claim) { return claim.listed ? Nanos{} : claim.presumed; });
  give([](const Claim& claim) { return claim.alone - claim.used; });
}

}  // namespace gpushare
