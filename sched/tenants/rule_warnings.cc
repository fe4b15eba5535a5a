// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/rule_warnings.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpushare {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Empty: the rule may hold.
std::string why_never(const Rule& rule, const std::function<bool(const std::string&)>& is_user) {
  constexpr std::string_view kBeginnings = "/*?";
  if (rule.cgroup && (rule.cgroup->empty() || !kBeginnings.contains(rule.cgroup->front())))
    return fmt::format("cgroup \"{0}\": the path of a cgroup begins with /, as in \"/{0}\"",
                       *rule.cgroup);
  if (rule.cgroup && rule.cgroup->starts_with("/sys/fs/cgroup"))
    return fmt::format("cgroup \"{}\": the path begins below /sys/fs/cgroup, at the cgroups' root",
                       *rule.cgroup);
  if (rule.cgroup && rule.cgroup->size() > 1 && rule.cgroup->ends_with('/')) {
    const std::string path = rule.cgroup->substr(0, rule.cgroup->size() - 1);
    return fmt::format(
        "cgroup \"{0}/\": the path of a cgroup ends with no /, as in \"{0}\" or \"{0}/*\"", path);
  }
  if (rule.cgroup && rule.cgroup->contains("//"))
    return fmt::format("cgroup \"{}\": the path of a cgroup has no // in it", *rule.cgroup);
  if (rule.user && !is_number(*rule.user) && !is_user(*rule.user))
    return fmt::format("user \"{}\": this machine knows no such user", *rule.user);
  if (rule.command && rule.command->empty()) return "command \"\": every process has a name";
  if (rule.container && rule.container->contains('/'))
    return fmt::format("container \"{}\": the name of a container has no / in it", *rule.container);
  return "";
}

// Whether the path may begin anywhere, and no other condition says whose it is. Containers that are
// known are root's.
bool is_anybodys(const Rule& rule) {
  return !rule.user && !rule.is_by_container() && rule.cgroup && rule.cgroup->size() > 1 &&
         rule.cgroup->starts_with('*');
}

// Whether all that holds for the other condition surely holds for this one.
bool covers(const std::optional<std::string>& wide, const std::optional<std::string>& other,
            bool is_glob) {
  return !wide || wide == other || (is_glob && *wide == "*");
}

bool is_same(const Rule& a, const Rule& b) {
  return a.cgroup == b.cgroup && a.user == b.user && a.command == b.command &&
         a.container == b.container && a.label == b.label;
}

bool is_wider(const Rule& wide, const Rule& other) {
  return covers(wide.cgroup, other.cgroup, true) && covers(wide.user, other.user, false) &&
         covers(wide.command, other.command, true) &&
         covers(wide.container, other.container, other.container.has_value()) &&
         covers(wide.label, other.label, false);
}

}  // namespace

std::vector<std::string> rule_warnings(std::span<const Rule> rules,
                                       const std::function<bool(const std::string&)>& is_user) {
  std::vector<std::string> lines;
  for (auto rule = rules.begin(); rule != rules.end(); ++rule) {
    std::string why = why_never(*rule, is_user);
    const auto before = std::find_if(rules.begin(), rule,
                                     [&](const Rule& earlier) { return is_wider(earlier, *rule); });
    if (why.empty() && before != rule)
      why = fmt::format("{} rule of tenant '{}' comes before it",
                        is_same(*before, *rule) ? "the same" : "a wider", before->tenant);
    if (why.empty() && is_anybodys(*rule))
      lines.push_back(fmt::format(
          "tenant.{}.match: cgroup \"{}\": any user can make a cgroup that matches, in a slice of "
          "its own; begin it with the folder that root makes, as in \"/system.slice/...\"",
          rule->tenant, *rule->cgroup));
    if (!why.empty())
      lines.push_back(fmt::format("tenant.{}.match: this rule never holds: {}", rule->tenant, why));
  }
  return lines;
}

}  // namespace gpushare
