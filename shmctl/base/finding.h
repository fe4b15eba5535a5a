// SPDX-License-Identifier: Apache-2.0
// Finding: one thing that `gpushare doctor` looked at. The agent makes findings about itself, the
// tools make those about the machine; both are shown in one list. Plain data.
#pragma once

#include <string>
#include <string_view>

namespace gpushare {

struct Finding {
  enum class Severity { kOk, kWarning, kFail };
  std::string check{};  // what was looked at, such as "supervisor"
  Severity severity = Severity::kOk;
  std::string detail{};  // one sentence
  std::string fix{};     // what to do about it; empty when there is nothing to do
};

// The names in the agent's protocol and in `gpushare doctor --json`.
constexpr std::string_view severity_name(Finding::Severity severity) {
  switch (severity) {
    case Finding::Severity::kOk:
      return "ok";
    case Finding::Severity::kWarning:
      return "warning";
    case Finding::Severity::kFail:
      break;
  }
  return "fail";
}

}  // namespace gpushare
