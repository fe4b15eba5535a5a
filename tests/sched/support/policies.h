// SPDX-License-Identifier: Apache-2.0
// The policies that there are, and configurations that may name them.
#pragma once

#include "sched/policies/policies.h"
#include "sched/tenants/config.h"

namespace gpushare::test {

inline const std::vector<PolicyEntry>& every_policy() {
  static const std::vector<PolicyEntry> all = all_policies();
  return all;
}

inline std::expected<Config, ConfigErrors> parse(std::string_view text,
                                                 std::string_view file = "gpushare.toml") {
  return parse_config(text, file, every_policy());
}

// The policy of this name, with these options, for a GPU of 132 SMs.
inline std::unique_ptr<Policy> make_policy(
    std::string_view name, std::vector<std::pair<std::string_view, int64_t>> options = {}) {
  PolicyChoice choice(*find_policy(every_policy(), name));
  for (const auto& [key, value] : options) choice.options.set(key, value);
  return choice.make(GpuView{});
}

}  // namespace gpushare::test
