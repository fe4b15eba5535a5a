// SPDX-License-Identifier: Apache-2.0
// Rules that can hold for no process, and those that any user can make hold, as far as that can be
// told from their text: the file that has them is correct, and yet does not do what its author
// wants. For `gpushared --check-config`. Pure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sched/tenants/rules.h"

namespace gpushare {

// One line for each such rule, in their order. `is_user` says whether the machine knows a name.
std::vector<std::string> rule_warnings(std::span<const Rule> rules,
                                       const std::function<bool(const std::string&)>& is_user);

}  // namespace gpushare
