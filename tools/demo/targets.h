// SPDX-License-Identifier: Apache-2.0
// Computes from the settings what share of one GPU each program of the demo should get. Pure.
//
// The classes are served one after the other, `high` first. What the classes above left is divided
// by weight among the saturating programs of a class; a capped one takes at most its cap, and the
// rest goes to the others. A program that does not saturate gets what it uses, in whatever class it
// is. Switching between programs takes a part of the GPU that no program gets.
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
  std::optional<double> used{};  // what it uses; empty if it is always busy
};

// Returns one share per claim, 0 to 1, in the same order. `switching` is the part of the GPU that
// switching takes.
std::vector<double> target_shares(std::span<const DemoClaim> claims, double switching);

// Returns the part of the GPU that `switches_per_s` take, at most what no program used. A switch
// takes 80 us on an H200, by its own log. At most 100 us are accepted, because time that stays idle
// for another reason must show as an error of the shares.
double switching_share(double switches_per_s, double unused);

}  // namespace gpushare
