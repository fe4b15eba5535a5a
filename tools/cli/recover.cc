// SPDX-License-Identifier: Apache-2.0
// gpushare recover: becomes `gpushared --recover`, because only the agent's code can undo.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "tools/agent/status_source.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"

namespace gpushare {
namespace {

// Looks beside this program and where a package puts daemons; otherwise it is looked up in PATH.
std::string find_gpushared() {
  std::error_code code;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", code).parent_path();
  for (const auto& path : {here / "gpushared", here / "../sbin/gpushared"})
    if (::access(path.c_str(), X_OK) == 0) return path;
  return "gpushared";
}

ExitCode recover(const Invocation& invocation) {
  const Endpoints endpoints = endpoints_of(invocation);
  const auto status = StatusSource(endpoints).read();
  if (status && status->health.is_live()) {
    fmt::print(stderr,
               "gpushare: the agent runs (pid {}) and recovers by itself; to thaw what was frozen "
               "by hand, use 'gpushare thaw'\n",
               status->snapshot.agent.agent_pid);
    return kExitFailure;
  }
  const std::string program = find_gpushared();
  ::execlp(program.c_str(), "gpushared", "--recover", "--region", endpoints.region.c_str(),
           static_cast<char*>(nullptr));
  return report(
      errno_error("start gpushared --recover", program + " (looked beside gpushare and in PATH)")
          .error());
}

}  // namespace

Command recover_command() {
  return {.name = "recover",
          .summary = "Thaw everything a dead agent left frozen and restore the time slices.",
          .details =
              "Runs 'gpushared --recover'. Not needed while the agent runs: it, or its "
              "supervisor, does this by itself. Needs root.",
          .examples = {"sudo gpushare recover"},
          .run = recover};
}

}  // namespace gpushare
