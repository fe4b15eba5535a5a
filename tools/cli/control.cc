// SPDX-License-Identifier: Apache-2.0
// gpushare set, remove, attach, freeze, thaw: each makes one request and is silent when it is done.
// What the kernel module's files can take is written there, if this user may; otherwise the request
// goes to the agent.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <sstream>

#include "shmctl/program/help.h"
#include "tools/agent/client.h"
#include "tools/agent/sysfs_control.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"
#include "tools/doctor/advice.h"

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
  if (!*done) return report_refusal(endpoints, request, done->error());
  return kExitOk;
}

// A number is a process, unless --tenant says otherwise; anything else is a tenant's name.
ExitCode tell_target(const Invocation& invocation, const char* op) {
  const std::string& target = invocation.arguments[0];
  if (invocation.has("tenant") || target.find_first_not_of("0123456789") != std::string::npos)
    return tell(invocation, {.op = op, .tenant = target});
  const auto pid = parse_pid(target);
  if (!pid) return invocation.wrong("'" + target + "' is neither a process id nor a tenant's name");
  const Request request{.op = op, .pid = pid};
  const auto is_on_gpu = ask_on_gpu(endpoints_of(invocation).socket, request);
  if (!is_on_gpu) {
    const ExitCode code = report(is_on_gpu.error());
    if (code == kExitUsage)
      fmt::print(stderr, "gpushare: 'gpushare {0} --tenant {1}' means a tenant of this name\n", op,
                 target);
    return code;
  }
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
  const ExitCode code = tell(invocation, request);
  if (code == kExitOk)
    warn_of_no_effect(endpoints_of(invocation), request.tenant, request.settings, true);
  return code;
}

// What runs in it goes on elsewhere, perhaps without its limits: that is said.
ExitCode remove(const Invocation& invocation) {
  const std::string& tenant = invocation.arguments[0];
  if (tenant == "default")
    return invocation.wrong(
        "the tenant 'default' cannot be removed: whom no rule places belongs to it");
  const uint32_t running = processes_on_gpus(endpoints_of(invocation), tenant);
  const ExitCode code = tell(invocation, {.op = "remove", .tenant = tenant});
  if (code == kExitOk && running > 0)
    fmt::print(stderr,
               "gpushare: warning: {} process{} of {} ran on a GPU; now {} the tenant that the "
               "rules name, otherwise 'default'\n",
               running, running == 1 ? "" : "es", tenant,
               running == 1 ? "it belongs to" : "they belong to");
  return code;
}

ExitCode attach(const Invocation& invocation) {
  const auto pid = parse_pid(invocation.arguments[0]);
  if (!pid) return invocation.wrong("'" + invocation.arguments[0] + "' is not a process id");
  if (*pid == 1)
    return invocation.wrong(
        "process 1 has started all others, which would follow it; name others, "
        "or change the tenant 'default'");
  return tell(invocation, {.op = "attach", .pid = pid, .tenant = invocation.arguments[1]});
}

}  // namespace

Command set_command() {
  std::vector<HelpEntry> keys;
  std::string offered;  // to shells
  for (size_t i = 0; const Option& option : setting_options()) {
    const std::string key(setting_keys()[i++]);
    keys.push_back({key + "=" + option.value, option_text(option)});
    offered += key + "= ";
    std::istringstream values(option.words);
    for (std::string value; values >> value;)
      offered.append(key).append("=").append(value).append(" ");
  }
  return {.name = "set",
          .summary = "Change settings of a tenant.",
          .arguments = "TENANT KEY=VALUE...",
          .argument_words = offered,
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

namespace {

// One without options, of which the summary says all.
Command simple(const char* name, const char* summary, const char* arguments, const char* example,
               ExitCode (*run)(const Invocation&)) {
  return {
      .name = name, .summary = summary, .arguments = arguments, .examples = {example}, .run = run};
}

Option tenant_option() {
  return {"tenant", 't', "", "The argument is a tenant's name, though it is a number"};
}

}  // namespace

Command remove_command() {
  return simple("remove", "Remove a tenant; its processes go to the one that their rules name.",
                "TENANT", "gpushare remove research", remove);
}

Command attach_command() {
  return simple("attach", "Move a running process to a tenant.", "PID TENANT",
                "gpushare attach 4711 research", attach);
}

Command freeze_command() {
  return {.name = "freeze",
          .summary = "Stop a process, or all processes of a tenant, on the GPU.",
          .arguments = "PID|TENANT",
          .details =
              "Its kernels stop where they are, its memory stays, and it resumes at that "
              "point when it is thawed. A number is a process id: that process alone is frozen, "
              "also where it comes to a GPU later. A freeze outlives the agent.",
          .options = {tenant_option()},
          .examples = {"gpushare freeze 4711", "gpushare freeze batch"},
          .run = [](const Invocation& invocation) { return tell_target(invocation, "freeze"); }};
}

Command thaw_command() {
  return {.name = "thaw",
          .summary = "Let what was frozen by 'gpushare freeze' run again.",
          .arguments = "PID|TENANT",
          .details = "A process that is frozen with its tenant is thawed with its tenant only.",
          .options = {tenant_option()},
          .examples = {"gpushare thaw 4711"},
          .run = [](const Invocation& invocation) { return tell_target(invocation, "thaw"); }};
}

}  // namespace gpushare
