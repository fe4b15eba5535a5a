// SPDX-License-Identifier: Apache-2.0
// gpushare status, gpushare tenants and gpushare queue: show the state of everything.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "tools/agent/status_source.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"
#include "tools/doctor/limits.h"
#include "tools/view/plain_view.h"
#include "tools/view/queue_view.h"

namespace gpushare {
namespace {

ExitCode show_status(const Invocation& invocation) {
  const auto status = StatusSource(endpoints_of(invocation)).read();
  if (!status) return report(status.error());
  return print_status(*status, invocation, [](const Status& shown, const Screen& screen) {
    return status_lines(shown, screen);
  });
}

// Of a dead agent's tenants nothing binds, which its line above the table says.
std::vector<IdleSetting> idle_settings(const Status& status) {
  std::vector<IdleSetting> idle;
  DoctorInput input;
  input.status = status;
  if (status.health.is_live())
    for (const LimitFinding& limit : check_limits(input))
      if (!limit.is_binding) idle.push_back({limit.limit, limit.why});
  return idle;
}

// What the marks of the table mean goes to standard error: standard output has the tenants alone,
// which shells read to complete their names.
ExitCode show_tenants(const Invocation& invocation) {
  const auto status = StatusSource(endpoints_of(invocation)).read();
  if (!status) return report(status.error());
  const std::vector<IdleSetting> idle = idle_settings(*status);
  const ExitCode code = print_status(
      *status, invocation,
      [&](const Status& shown, const Screen& screen) { return tenant_lines(shown, screen, idle); });
  if (invocation.has("json")) return code;
  std::fflush(stdout);
  Screen screen = stdout_table_screen(invocation.has("wide"));
  screen.has_colours = screen.has_colours && ::isatty(STDERR_FILENO) == 1;
  for (const std::string& line : mark_lines(*status, screen, idle))
    fmt::print(stderr, "{}\n", line);
  return code;
}

Option wide_option() { return {"wide", 'W', "", "Cut nothing to the width of the terminal"}; }

constexpr auto kBetweenLooks = std::chrono::seconds(1);

ExitCode show_queue(const Invocation& invocation) {
  const auto asked = gpu_option(invocation);
  if (!asked) return invocation.wrong(asked.error().detail);
  const std::optional<uint32_t> gpu = *asked;
  const bool watches = invocation.has("watch"), is_json = invocation.has("json");
  const bool clears = watches && !is_json && ::isatty(STDOUT_FILENO) == 1;
  StatusSource source(endpoints_of(invocation));
  while (true) {
    auto status = source.read();
    if (!status) return report(status.error());
    // A dead agent knows of no GPU any more.
    if (gpu && status->health.is_live() &&
        std::ranges::find(status->snapshot.gpus, *gpu, &GpuRecord::index) ==
            status->snapshot.gpus.end())
      return invocation.wrong(
          fmt::format("there is no GPU {}; there are {}", *gpu, status->snapshot.gpus.size()));
    if (clears) fmt::print("\033[H\033[J");
    if (is_json) {
      fmt::print("{}\n", queue_json(status->snapshot, gpu));
    } else {
      const Screen screen = stdout_table_screen(invocation.has("wide"));
      for (const std::string& line : queue_lines(*status, screen, gpu)) fmt::print("{}\n", line);
    }
    std::fflush(stdout);
    if (!watches) return status->health.is_live() ? kExitOk : kExitFailure;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

Command status_command() {
  return {.name = "status",
          .summary = "Show the agent, the GPUs and every process on them.",
          .options = {json_option(), wide_option()},
          .examples = {"gpushare status", "gpushare status --json | jq '.processes[].share_pct'"},
          .run = show_status};
}

Command tenants_command() {
  return {.name = "tenants",
          .summary = "Show the tenants, their settings and what they got.",
          .options = {json_option(), wide_option()},
          .examples = {"gpushare tenants"},
          .run = show_tenants};
}

Command queue_command() {
  return {.name = "queue",
          .summary = "Show the jobs that take turns on the GPUs, in their order.",
          .details =
              "A job is what one 'gpushare run' has started, with its children, or any other "
              "GPU process by itself. For each: its place, whether it runs, is held between "
              "two iterations, is stopped in mid-kernel or is being stopped, what it has "
              "received and still needs, and why it waits. Below are the runs that wait for a GPU "
              "on which their memory fits (gpushare run --gpu), in the order in which they asked.",
          .options = {{"gpu", 0, "N", "Only the jobs on this GPU"},
                      {"watch", 0, "", "Show it again every second"},
                      json_option(),
                      wide_option()},
          .examples = {"gpushare queue", "gpushare queue --gpu 0 --watch",
                       "gpushare queue --json | jq '.jobs[].left_us'"},
          .run = show_queue};
}

}  // namespace gpushare
