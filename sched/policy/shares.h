// SPDX-License-Identifier: Apache-2.0
// Division of GPU time by weight, where some take no more than a ceiling. Pure.
#pragma once

#include <span>

namespace gpushare {

struct Demand {
  double weight = 1;   // > 0
  double ceiling = 1;  // takes at most this share, 0..1
};

// Divides `total` so that all get the same per weight, except those that reach their ceilings; what
// they leave goes to the others by weight. shares[i] belongs to demands[i]; the sum of the shares
// is `total`, or all ceilings together where that is less. O(n log n).
//   total 1, weights 1 1 2, ceilings 0.1 1 1  ->  0.1 0.3 0.6
void divide(double total, std::span<const Demand> demands, std::span<double> shares);

}  // namespace gpushare
