// SPDX-License-Identifier: Apache-2.0
// Weighted division of GPU time among claimants of whom some take no more than a ceiling. Pure.
#pragma once

#include <span>

namespace gpushare {

struct Claim {
  double weight = 1;   // > 0
  double ceiling = 1;  // takes at most this share, 0..1
};

// Divides `total` so that everyone gets the same per weight, except who is at its ceiling; what
// those leave goes to the others by weight. shares[i] belongs to claims[i]; their sum is the
// smaller of `total` and all ceilings together. O(n log n).
//   total 1, weights 1 1 2, ceilings 0.1 1 1  ->  0.1 0.3 0.6
void divide(double total, std::span<const Claim> claims, std::span<double> shares);

}  // namespace gpushare
