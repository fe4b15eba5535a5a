// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/entry.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpushare {

PolicyOptions::PolicyOptions(std::span<const PolicyOption> options) : options_(options) {
  for (const PolicyOption& option : options) values_.push_back(option.otherwise);
}

std::size_t PolicyOptions::find(std::string_view key) const {
  return static_cast<std::size_t>(std::ranges::find(options_, key, &PolicyOption::key) -
                                  options_.begin());
}

const PolicyEntry* find_policy(std::span<const PolicyEntry> entries, std::string_view name) {
  const auto found = std::ranges::find(entries, name, &PolicyEntry::name);
  return found == entries.end() ? nullptr : &*found;
}

std::string describe_policies(std::span<const PolicyEntry> entries) {
  std::string text;
  for (const PolicyEntry& entry : entries) {
    text += fmt::format("{}: {}\n", entry.name, entry.summary);
    if (entry.needs.spatial) text += "    needs sharing = \"spatial\"\n";
    for (const PolicyOption& option : entry.options)
      text += fmt::format("    {} = {} ({} to {}): {}{}\n", option.key, option.otherwise,
                          option.least, option.most, option.help,
                          option.is_spatial ? "; needs sharing = \"spatial\"" : "");
  }
  return text;
}

}  // namespace gpushare
