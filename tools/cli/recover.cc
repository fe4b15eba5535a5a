// SPDX-License-Identifier: Apache-2.0
// gpushare recover and gpushare forget: become `gpushared --recover` and, when no agent runs,
// `gpushared --forget`, because only the agent's code can do that.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "tools/agent/client.h"
#include "tools/agent/status_source.h"
#include "tools/base/beside.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"

namespace gpushare {
namespace {

ExitCode become_gpushared(const char* what, const Endpoints& endpoints) {
  if (endpoints.region.empty())
    return report(Error{std::make_error_code(std::errc::invalid_argument), "open control plane",
                        "no agent runs there, and --region was not given with --socket: give the "
                        "one that it had"});
  const std::string program = find_gpushared();
  ::execlp(program.c_str(), "gpushared", what, "--region", endpoints.region.c_str(),
           static_cast<char*>(nullptr));
  return report(errno_error("start gpushared", fmt::format("{} {} (looked beside gpushare and in "
                                                           "PATH)",
                                                           program, what))
                    .error());
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
  return become_gpushared("--recover", endpoints);
}

ExitCode forget(const Invocation& invocation) {
  const Endpoints endpoints = endpoints_of(invocation);
  auto agent = Client::connect(endpoints.socket);
  if (!agent)  // the error has a code unless none runs
    return agent.error().code ? report(agent.error()) : become_gpushared("--forget", endpoints);
  const auto answer = agent->ask({.op = "forget"});
  const Result<> done = answer ? decode_done(*answer) : std::unexpected(answer.error());
  return done ? kExitOk : report(done.error());
}

}  // namespace

Command forget_command() {
  return {.name = "forget",
          .summary = "Drop all that was set at run time.",
          .details =
              "Tenants that the configuration does not name are removed, with those of 'gpushare "
              "run'; the settings of the others are those of the configuration again; what was "
              "frozen by hand is thawed. Without this, all of it outlives the agent, also when "
              "the service is stopped and started again. Programs go on; those of a tenant that "
              "is removed go to the one that their rules name. When no agent runs, 'gpushared "
              "--forget' does it, which needs root.",
          .examples = {"gpushare forget"},
          .run = forget};
}

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
