// SPDX-License-Identifier: Apache-2.0
#include "tools/view/tenant_tree_order.h"

#include <algorithm>

#include "tools/base/format.h"

namespace gpushare {

std::vector<TenantInTree> in_order_of_tree(const PlaneSnapshot& snapshot) {
  std::vector<TenantInTree> all;
  bool is_tree = false;
  for (const auto& [slot, tenant] : snapshot.tenants) {
    all.push_back({.name = tenant_text(tenant), .slot = slot, .tenant = &tenant});
    is_tree = is_tree || all.back().name.contains('/');
  }
  if (!is_tree) return all;
  std::ranges::sort(all, {}, [](const TenantInTree& one) {
    std::string path = one.name;
    std::ranges::replace(path, '/', '\0');  // before all that a name may have
    return path;
  });
  for (std::size_t i = 0; i < all.size(); ++i)
    while (i + all[i].below + 1 < all.size() &&
           all[i + all[i].below + 1].name.starts_with(all[i].name + '/'))
      ++all[i].below;
  return all;
}

}  // namespace gpushare
