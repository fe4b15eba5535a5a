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
#include "tools/view/plain_view.h"

namespace gpushare {
namespace {

ExitCode show(const Invocation& invocation,
              std::vector<std::string> (*lines)(const Status&, const Screen&)) {
  auto status = StatusSource(endpoints_of(invocation)).read();
  if (!status) return report(status.error());
  if (invocation.has("json")) {
    fmt::print("{}\n", status_json(status->snapshot));
  } else {
    for (const std::string& line : lines(*status, stdout_screen())) fmt::print("{}\n", line);
  }
  // What a dead agent left behind is shown, but it is no success.
  return status->health.is_live() ? kExitOk : kExitFailure;
}

}  // namespace

Command status_command() {
  return {.name = "status",
          .summary = "Show the agent, the GPUs and every process on them.",
          .options = {json_option()},
          .examples = {"gpushare status", "gpushare status --json | jq '.processes[].share_pct'"},
          .run = [](const Invocation& invocation) { return show(invocation, status_lines); }};
}

Command tenants_command() {
  return {.name = "tenants",
          .summary = "Show the tenants, their settings and what they got.",
          .options = {json_option()},
          .examples = {"gpushare tenants"},
          .run = [](const Invocation& invocation) { return show(invocation, tenant_lines); }};
}

}  // namespace gpushare
