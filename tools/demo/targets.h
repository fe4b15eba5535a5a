// SPDX-License-Identifier: Apache-2.0
// What share of one GPU each program of the demo should get, from its settings alone. Pure.
//
// A class at a time, `high` first: what the classes above left is divided by weight among its
// saturating programs; a capped one takes at most its cap and the rest goes to the others. Whoever
// does not saturate gets what it uses, in whatever class it is. Switching between programs takes a
// part of the GPU that nobody gets.
//   weights 300 and 100, 300 capped at 20 %, a service that uses 2 %, switching 3 %:
//   95 % are left; 3/7 of it is above the cap, so 20 % and 75 % = 56.25 % + 18.75 %
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "shmctl/plane/layout.h"

namespace gpushare {

struct DemoClaim {
  double weight = 100;
  double cap = 1;  // of the GPU
  Priority priority = Priority::kNormal;
  std::optional<double> used{};  // what it uses; nullopt: always busy
};

// One share per claim, 0..1, in the same order. `switching`: the part of the GPU that goes there.
std::vector<double> target_shares(std::span<const DemoClaim> claims, double switching);

// The part of the GPU that `switches_per_s` take, at most what nobody used. A switch is 80 us on an
// H200, by its own log; up to 100 us are accepted, since what stays idle for another reason must
// show as an error of the shares.
double switching_share(double switches_per_s, double unused);

}  // namespace gpushare
