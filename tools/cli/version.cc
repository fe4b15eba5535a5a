// SPDX-License-Identifier: Apache-2.0
// gpushare version and completion.
#include <fmt/format.h>

#include <cstdio>

#include "shmctl/base/version.h"
#include "tools/agent/client.h"
#include "tools/base/endpoints.h"
#include "tools/base/format.h"
#include "tools/base/report.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/completion.h"

namespace gpushare {
// That no agent runs is an answer here, not a failure.
ExitCode command_version(const Invocation& invocation) {
  const auto agent = ask_hello(endpoints_of(invocation).socket);
  if (invocation.has("json")) {
    const std::string text =
        agent ? fmt::format(R"({{"version":{},"commit":{},"pid":{}}})", json_quoted(agent->version),
                            json_quoted(agent->commit), agent->pid)
              : "null";
    fmt::print(R"({{"version":{},"commit":{},"agent":{}}})"
               "\n",
               json_quoted(kVersion), json_quoted(kCommit), text);
    return kExitOk;
  }
  fmt::print("gpushare {} ({})\n", kVersion, kCommit);
  if (agent)
    fmt::print("gpushared {} ({}), pid {}\n", printable(agent->version), printable(agent->commit),
               agent->pid);
  else
    fmt::print("gpushared: {}\n", agent.error().message());
  return kExitOk;
}

ExitCode command_completion(const Invocation& invocation) {
  const auto script = completion_script(gpushare_spec(), invocation.arguments[0]);
  if (!script)
    return report_usage(
        "no completion for '" + invocation.arguments[0] + "'; the shells are: bash, zsh, fish",
        *invocation.command);
  fmt::print("{}", *script);
  return kExitOk;
}

}  // namespace gpushare
