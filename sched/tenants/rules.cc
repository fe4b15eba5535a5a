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

bool has_name(const std::string& glob, const Container& container) {
  return std::ranges::any_of(container.names,
                             [&](const std::string& name) { return glob_matches(glob, name); });
}

// "KEY=GLOB"
bool has_label(std::string_view condition, const Container& container) {
  const std::size_t equals = condition.find('=');
  if (equals == std::string_view::npos) return false;
  const auto label = container.labels.find(condition.substr(0, equals));
  return label != container.labels.end() &&
         glob_matches(condition.substr(equals + 1), label->second);
}

}  // namespace

bool rule_matches(const Rule& rule, const ProcessIdentity& process) {
  if (rule.cgroup && !glob_matches(*rule.cgroup, process.cgroup_path)) return false;
  if (rule.user && !runs_for(*rule.user, process)) return false;
  if (rule.command && !glob_matches(*rule.command, process.command) &&
      !glob_matches(*rule.command, process.command_line)) {
    return false;
  }
  if (rule.is_by_container() && process.container == nullptr) return false;
  if (rule.container && !has_name(*rule.container, *process.container)) return false;
  if (rule.label && !has_label(*rule.label, *process.container)) return false;
  return rule.cgroup || rule.user || rule.command || rule.is_by_container();
}

}  // namespace gpushare
