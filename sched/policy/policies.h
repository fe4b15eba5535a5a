// SPDX-License-Identifier: Apache-2.0
// The policies there are, by name. A new one is a new line in policies.cc.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "sched/policy/policy.h"

namespace gpushare {

std::span<const std::string_view> policy_names();

// nullptr: no policy of that name. One object per GPU.
std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options);

}  // namespace gpushare
