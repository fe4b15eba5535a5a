// SPDX-License-Identifier: Apache-2.0
// gpushare set, remove, attach, freeze, thaw: one request each, silent when done. To the agent;
// what can be written into the kernel module's files is, by whoever may.
#include <charconv>
#include <optional>

#include "tools/agent/client.h"
#include "tools/agent/sysfs_control.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"

namespace gpushare {
namespace {

std::optional<pid_t> parse_pid(const std::string& text) {
  pid_t pid = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, pid);
  if (failure != std::errc{} || rest != end || pid <= 0) return std::nullopt;
  return pid;
}

ExitCode tell(const Invocation& invocation, const Request& request) {
  const Endpoints endpoints = endpoints_of(invocation);
  SysfsTree tree(endpoints.sysfs);
  auto done = endpoints.sysfs.empty() ? std::nullopt : change_in_sysfs(tree, request);
  if (!done) done = tell_agent(endpoints.socket, request);
  if (!*done) return report(done->error());
  return kExitOk;
}

// A number is a process, anything else a tenant's name.
ExitCode tell_target(const Invocation& invocation, const char* op) {
  const std::string& target = invocation.arguments[0];
  Request request{.op = op};
  if (target.find_first_not_of("0123456789") != std::string::npos) {
    request.tenant = target;
  } else if (const auto pid = parse_pid(target)) {
    request.pid = pid;
  } else {
    return report_usage("'" + target + "' is neither a process id nor a tenant's name",
                        *invocation.command);
  }
  return tell(invocation, request);
}

}  // namespace

ExitCode command_set(const Invocation& invocation) {
  Request request{
      .op = "set", .tenant = invocation.arguments[0], .create = invocation.has("create")};
  for (size_t i = 1; i < invocation.arguments.size(); ++i) {
    const std::string& setting = invocation.arguments[i];
    const size_t sign = setting.find('=');
    if (sign == std::string::npos || sign == 0)
      return report_usage("'" + setting + "' is not KEY=VALUE, such as weight=300",
                          *invocation.command);
    request.settings.emplace_back(setting.substr(0, sign), setting.substr(sign + 1));
  }
  return tell(invocation, request);
}

ExitCode command_remove(const Invocation& invocation) {
  return tell(invocation, {.op = "remove", .tenant = invocation.arguments[0]});
}

ExitCode command_attach(const Invocation& invocation) {
  const auto pid = parse_pid(invocation.arguments[0]);
  if (!pid)
    return report_usage("'" + invocation.arguments[0] + "' is not a process id",
                        *invocation.command);
  return tell(invocation, {.op = "attach", .pid = pid, .tenant = invocation.arguments[1]});
}

ExitCode command_freeze(const Invocation& invocation) { return tell_target(invocation, "freeze"); }

ExitCode command_thaw(const Invocation& invocation) { return tell_target(invocation, "thaw"); }

}  // namespace gpushare
