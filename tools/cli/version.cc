// SPDX-License-Identifier: Apache-2.0
// gpushare version and gpushare completion: what this program is, and what shells need of it.
#include <fmt/format.h>

#include "shmctl/base/version.h"
#include "shmctl/program/completion.h"
#include "tools/agent/client.h"
#include "tools/base/endpoints.h"
#include "tools/base/format.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"

namespace gpushare {
namespace {

// It is no failure here that no agent runs.
ExitCode version(const Invocation& invocation) {
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

ExitCode completion(const Invocation& invocation) {
  fmt::print("{}", completion_script(gpushare_program(), invocation.arguments[0]));
  return kExitOk;
}

}  // namespace

Command version_command() {
  return {.name = "version",
          .summary = "Print the version of gpushare and of the running agent.",
          .options = {json_option()},
          .examples = {"gpushare version"},
          .run = version};
}

Command completion_command() {
  return {.name = "completion",
          .summary = "Print a completion script for a shell.",
          .arguments = "bash|zsh|fish",
          .examples = {"gpushare completion bash > /etc/bash_completion.d/gpushare",
                       "source <(gpushare completion zsh)"},
          .run = completion};
}

}  // namespace gpushare
