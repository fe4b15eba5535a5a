// SPDX-License-Identifier: Apache-2.0
#include "sched/module/kernel_rules.h"

#include <pwd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>

namespace gpushare {
namespace {

constexpr std::size_t kLongestGlob = 255;
constexpr std::size_t kLargestEntry = 1 << 20;  // of the name service

bool is_kernels_glob(const std::string& glob) {
  return glob.size() <= kLongestGlob && (glob.starts_with('/') || glob.starts_with('*')) &&
         glob.find('\n') == std::string::npos;
}

}  // namespace

SplitRules split_rules(std::span<const Rule> rules,
                       const std::function<std::optional<uid_t>(const std::string&)>& uid_of) {
  SplitRules split;
  std::set<std::string> with_cgroup, with_uid;
  std::size_t at = 0;
  for (; at < rules.size(); ++at) {
    const Rule& rule = rules[at];
    if (rule.is_by_cgroup_alone() && with_uid.empty() && is_kernels_glob(*rule.cgroup) &&
        with_cgroup.insert(rule.tenant).second) {
      split.of_kernel.push_back({rule.tenant, *rule.cgroup, std::nullopt});
    } else if (const auto uid = rule.is_by_user_alone() ? uid_of(*rule.user) : std::nullopt;
               uid && with_uid.insert(rule.tenant).second) {
      split.of_kernel.push_back({rule.tenant, "", uid});
    } else {
      break;
    }
  }
  split.of_agent.assign(rules.begin() + static_cast<std::ptrdiff_t>(at), rules.end());
  return split;
}

std::vector<Rule> rules_in_force(std::span<const Rule> file, std::span<const KernelRule> of_kernel,
                                 std::span<const KernelRule> shown) {
  std::vector<Rule> rules;
  for (const bool is_by_uid : {false, true}) {
    for (std::size_t i = 0; i < of_kernel.size(); ++i)
      if (of_kernel[i].uid.has_value() == is_by_uid &&
          std::ranges::find(shown, of_kernel[i]) != shown.end())
        rules.push_back(file[i]);
    for (const KernelRule& rule : shown) {
      if (rule.uid.has_value() != is_by_uid ||
          std::ranges::find(of_kernel, rule) != of_kernel.end())
        continue;
      Rule& added = rules.emplace_back();
      added.tenant = rule.tenant;
      if (rule.uid)
        added.user = std::to_string(*rule.uid);
      else
        added.cgroup = rule.cgroup;
    }
  }
  const auto rest = file.subspan(of_kernel.size());
  rules.insert(rules.end(), rest.begin(), rest.end());
  return rules;
}

std::optional<uid_t> uid_in(const std::string& user) {
  uid_t uid = 0;
  const auto [rest, error] = std::from_chars(user.data(), user.data() + user.size(), uid);
  const bool is_number = error == std::errc{} && rest == user.data() + user.size();
  return is_number ? std::optional(uid) : std::nullopt;
}

std::optional<uid_t> system_uid_of(const std::string& user) {
  if (const auto uid = uid_in(user)) return uid;
  std::vector<char> buffer(1024);
  passwd entry{};
  passwd* found = nullptr;
  while (::getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(), &found) == ERANGE &&
         buffer.size() < kLargestEntry)
    buffer.resize(2 * buffer.size());
  return found == nullptr ? std::nullopt : std::optional(found->pw_uid);
}

}  // namespace gpushare
