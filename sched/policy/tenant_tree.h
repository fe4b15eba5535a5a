// SPDX-License-Identifier: Apache-2.0
// The tree of tenants laid flat, so that a policy sees tenants side by side: weights and ceilings
// by which they get what the tree gives them. At each place of the tree the time there is is
// divided by weight among those that have work in them or below them; a cap of one holds for all
// below it together. The processes of a tenant with others below it are one of these, with the
// weight that a tenant has by default. Each priority class is divided for itself. Pure.
//   team 300 (a 100, b 300) and lab 100 -> a 18.75 %, b 56.25 %, lab 25 %
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sched/policy/policy.h"

namespace gpushare {

// A tenant of the tree, with a process on the GPU or not.
struct TreeTenant {
  uint32_t id = 0;                  // TenantView::id
  std::optional<uint32_t> above{};  // the id of the one right above it; none: it is at the top
  double weight = 100;
  double ceiling = 1;  // its cap: the part of the GPU that it and all below it take at most
};

// Sets the weight and the ceiling of each view. `tree`: ascending by id, with each of the views and
// all above it. `active`: the views, by their index, that have work now. The weights of those of
// one class add up to what they are set to, so that the scale is that of tenants without a tree;
// one without work has the weight with which it would get its part, and in a class in which nobody
// has work all have their own. O(n log n).
void lay_flat(std::span<const TreeTenant> tree, const std::vector<bool>& active,
              std::span<TenantView> views);

}  // namespace gpushare
