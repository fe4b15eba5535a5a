// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/policies.h"

#include <array>

#include "sched/policy/fair.h"

namespace gpushare {
namespace {
constexpr std::array<std::string_view, 1> kNames = {"fair"};
}

std::span<const std::string_view> policy_names() { return kNames; }

std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options) {
  if (name == "fair") return std::make_unique<FairPolicy>(options);
  return nullptr;
}

}  // namespace gpushare
