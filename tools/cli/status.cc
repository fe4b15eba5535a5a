// SPDX-License-Identifier: Apache-2.0
// gpushare status and gpushare tenants: show the state of everything, once.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "shmctl/plane/status_json.h"
#include "tools/agent/status_source.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"
#include "tools/doctor/limits.h"
#include "tools/view/plain_view.h"

namespace gpushare {
namespace {

using Lines = std::vector<std::string> (*)(const Status&, const Screen&);

ExitCode show(const Invocation& invocation, Lines lines) {
  auto status = StatusSource(endpoints_of(invocation)).read();
  if (!status) return report(status.error());
  if (invocation.has("json")) {
    fmt::print("{}\n", status_json(status->snapshot));
  } else {
    const Screen screen = stdout_table_screen(invocation.has("wide"));
    for (const std::string& line : lines(*status, screen)) fmt::print("{}\n", line);
  }
  // What a dead agent left behind is shown, but it is no success.
  return status->health.is_live() ? kExitOk : kExitFailure;
}

// Of a dead agent's tenants nothing binds, which its line above the table says.
std::vector<std::string> marked_tenant_lines(const Status& status, const Screen& screen) {
  std::vector<IdleSetting> idle;
  DoctorInput input;
  input.status = status;
  if (status.health.is_live())
    for (const LimitFinding& limit : check_limits(input))
      if (!limit.is_binding) idle.push_back({limit.limit, limit.why});
  return tenant_lines(status, screen, idle);
}

Option wide_option() { return {"wide", 'W', "", "Cut nothing to the width of the terminal"}; }

}  // namespace

Command status_command() {
  return {.name = "status",
          .summary = "Show the agent, the GPUs and every process on them.",
          .options = {json_option(), wide_option()},
          .examples = {"gpushare status", "gpushare status --json | jq '.processes[].share_pct'"},
          .run = [](const Invocation& invocation) { return show(invocation, status_lines); }};
}

Command tenants_command() {
  return {
      .name = "tenants",
      .summary = "Show the tenants, their settings and what they got.",
      .options = {json_option(), wide_option()},
      .examples = {"gpushare tenants"},
      .run = [](const Invocation& invocation) { return show(invocation, marked_tenant_lines); }};
}

}  // namespace gpushare
