// SPDX-License-Identifier: Apache-2.0
// In which order people see tenants: as they lie in the control plane, or, where one is below
// another (team/job), each followed by those below it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shmctl/plane/snapshot.h"

namespace gpushare {

struct TenantInTree {
  std::string name;  // for people
  uint32_t slot = 0;
  const TenantRecord* tenant = nullptr;
  std::size_t below = 0;  // so many of the next ones are below it
};

// The records are those of `snapshot`.
std::vector<TenantInTree> in_order_of_tree(const PlaneSnapshot& snapshot);

}  // namespace gpushare
