// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "intercept/lineage.h"

namespace gpushare::test {

// Lines as the test says.
class FakeLineage final : public Lineage {
 public:
  std::map<pid_t, ProcessId> lines;  // of living processes
  bool is_readable = true;

  Result<> follow(const ProcessId& founder) override {
    lines[founder.pid] = founder;
    return {};
  }
  std::optional<ProcessId> founder_of(pid_t pid) const override {
    const auto at = lines.find(pid);
    return at == lines.end() ? std::nullopt : std::optional(at->second);
  }
  std::optional<std::set<ProcessId>> founders() const override {
    if (!is_readable) return std::nullopt;
    std::set<ProcessId> all;
    for (const auto& [pid, founder] : lines) all.insert(founder);
    return all;
  }
};

}  // namespace gpushare::test
