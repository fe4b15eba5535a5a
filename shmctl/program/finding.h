// SPDX-License-Identifier: Apache-2.0
// Finding: the result of one check of `gpushare doctor`. The agent makes findings about itself and
// the tools make those about the machine; both are shown in one list. Plain data, any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpushare {

struct Finding {
  enum class Severity { kOk, kWarning, kFail };
  std::string check{};  // the name of what was checked, such as "supervisor"
  Severity severity = Severity::kOk;
  std::string detail{};  // one sentence that says what was found
  std::string fix{};     // what a person can do about it; empty when there is nothing to do
};

// "ok", "warning" or "fail", as in the agent's protocol and in `gpushare doctor --json`.
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
