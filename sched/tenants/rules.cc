// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/rules.h"

#include <algorithm>
#include <cstddef>

namespace gpushare {

bool glob_matches(std::string_view pattern, std::string_view text) {
  constexpr size_t kNone = std::string_view::npos;
  size_t p = 0, t = 0;
  size_t star = kNone;  // the last '*' so far; it stands for the text up to `swallowed`
  size_t swallowed = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      swallowed = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != kNone) {
      p = star + 1;
      t = ++swallowed;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

namespace {

bool runs_for(const std::string& user, const ProcessIdentity& process) {
  const auto is_it = [&](uid_t uid, const std::string& name) {
    return user == name || user == std::to_string(uid);
  };
  return is_it(process.uid, process.user) ||
         std::ranges::any_of(process.owners,
                             [&](const UserIdentity& one) { return is_it(one.uid, one.name); });
}

}  // namespace

bool rule_matches(const Rule& rule, const ProcessIdentity& process) {
  if (rule.cgroup && !glob_matches(*rule.cgroup, process.cgroup_path)) return false;
  if (rule.user && !runs_for(*rule.user, process)) return false;
  if (rule.command && !glob_matches(*rule.command, process.command) &&
      !glob_matches(*rule.command, process.command_line)) {
    return false;
  }
  return rule.cgroup || rule.user || rule.command;
}

}  // namespace gpushare
