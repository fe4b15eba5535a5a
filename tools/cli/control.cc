// SPDX-License-Identifier: Apache-2.0
// gpushare set, remove, attach, freeze, thaw: each makes one request and is silent when it is done.
// What the kernel module's files can take is written there, if this user may; otherwise the request
// goes to the agent.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "shmctl/program/help.h"
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
  if (target.find_first_not_of("0123456789") != std::string::npos)
    return tell(invocation, {.op = op, .tenant = target});
  const auto pid = parse_pid(target);
  if (!pid) return invocation.wrong("'" + target + "' is neither a process id nor a tenant's name");
  const Request request{.op = op, .pid = pid};
  const auto is_on_gpu = ask_on_gpu(endpoints_of(invocation).socket, request);
  if (!is_on_gpu) return report(is_on_gpu.error());
  if (request.op == "freeze" && !*is_on_gpu)
    fmt::print(stderr, "gpushare: process {} is on no GPU now; it is frozen as soon as it is\n",
               *pid);
  return kExitOk;
}

ExitCode set(const Invocation& invocation) {
  Request request{
      .op = "set", .tenant = invocation.arguments[0], .create = invocation.has("create")};
  for (size_t i = 1; i < invocation.arguments.size(); ++i) {
    const std::string& setting = invocation.arguments[i];
    const size_t sign = setting.find('=');
    if (sign == std::string::npos || sign == 0)
      return invocation.wrong("'" + setting + "' is not KEY=VALUE, such as weight=300");
    request.settings.emplace_back(setting.substr(0, sign), setting.substr(sign + 1));
  }
  return tell(invocation, request);
}

ExitCode remove(const Invocation& invocation) {
  return tell(invocation, {.op = "remove", .tenant = invocation.arguments[0]});
}

ExitCode attach(const Invocation& invocation) {
  const auto pid = parse_pid(invocation.arguments[0]);
  if (!pid) return invocation.wrong("'" + invocation.arguments[0] + "' is not a process id");
  return tell(invocation, {.op = "attach", .pid = pid, .tenant = invocation.arguments[1]});
}

}  // namespace

Command set_command() {
  std::vector<HelpEntry> keys;
  for (const Option& option : setting_options()) {
    std::string key = option.name;
    std::ranges::replace(key, '-', '_');
    keys.push_back({key + "=" + option.value, option_text(option)});
  }
  return {.name = "set",
          .summary = "Change settings of a tenant.",
          .arguments = "TENANT KEY=VALUE...",
          .details =
              "It takes effect within one tick of the agent, also on running programs. Where "
              "the kernel module is loaded, its files are written, which needs no agent. "
              "The keys, and in brackets what holds until they are set:\n" +
              entries_text(keys),
          .options = {{"create", 'c', "", "Make the tenant if there is none"}},
          .examples = {"gpushare set research weight=300 max=30%",
                       "gpushare set --create batch priority=idle",
                       "gpushare set batch max=\"30000 100000\"  # 30 ms in every 100 ms"},
          .run = set};
}

Command remove_command() {
  return {.name = "remove",
          .summary = "Remove a tenant; its processes go to the one that their rules name.",
          .arguments = "TENANT",
          .examples = {"gpushare remove research"},
          .run = remove};
}

Command attach_command() {
  return {.name = "attach",
          .summary = "Move a running process to a tenant.",
          .arguments = "PID TENANT",
          .examples = {"gpushare attach 4711 research"},
          .run = attach};
}

Command freeze_command() {
  return {.name = "freeze",
          .summary = "Stop a process, or all processes of a tenant, on the GPU.",
          .arguments = "PID|TENANT",
          .details =
              "Its kernels stop where they are, its memory stays, and it resumes at that "
              "point when it is thawed. A number is a process id: that process alone is frozen, "
              "also where it comes to a GPU later. A freeze outlives the agent.",
          .examples = {"gpushare freeze 4711", "gpushare freeze batch"},
          .run = [](const Invocation& invocation) { return tell_target(invocation, "freeze"); }};
}

Command thaw_command() {
  return {.name = "thaw",
          .summary = "Let what was frozen by 'gpushare freeze' run again.",
          .arguments = "PID|TENANT",
          .details = "A process that is frozen with its tenant is thawed with its tenant only.",
          .examples = {"gpushare thaw 4711"},
          .run = [](const Invocation& invocation) { return tell_target(invocation, "thaw"); }};
}

}  // namespace gpushare
