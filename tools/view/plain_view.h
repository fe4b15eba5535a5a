// SPDX-License-Identifier: Apache-2.0
// Formats a status as lines of text for gpushare status, gpushare tenants and gpushare-top --once.
// Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shmctl/program/command_line.h"
#include "tools/agent/status_source.h"
#include "tools/base/report.h"
#include "tools/view/process_table.h"

namespace gpushare {

// Adds what is above the tables: whether the agent runs, what that means if it does not, and
// warning_lines().
void add_head(std::vector<std::string>& lines, const Status& status, const Screen& screen);
// The agent, a line or two per GPU, and a table of the processes of `choice`; without an order in
// it, by GPU.
std::vector<std::string> status_lines(const Status& status, const Screen& screen,
                                      const RowChoice& choice = {});
// A setting that has no effect on this machine now, and why.
struct IdleSetting {
  std::string key;
  std::string why;
};
// A table of the tenants. What one of them sets of `idle` is marked. One that has others below it
// in the tree is shown with all that these have and use.
std::vector<std::string> tenant_lines(const Status& status, const Screen& screen,
                                      const std::vector<IdleSetting>& idle = {});
// Explains the marks of that table: a line for each setting that has one.
std::vector<std::string> mark_lines(const Status& status, const Screen& screen,
                                    const std::vector<IdleSetting>& idle);

// The parts, for gpushare-top.
// The share: "29.8%" or, with several GPUs, "29.8+50.1%" of those on which it is known.
std::string shares_text(const TenantRecord& tenant, const PlaneSnapshot& snapshot,
                        uint32_t TenantGpuUse::* member);
// The SMs in use and entitled to (slo_view.h) of each GPU on which it has a partition:
// "64/64+32/48", or "-" if it has none.
std::string parts_text(const TenantRecord& tenant, const PlaneSnapshot& snapshot);
// Says why not everything is enforced and what was missed; empty if there is nothing to say.
std::vector<std::string> warning_lines(const PlaneSnapshot& snapshot);

// The lines of one of these tables, and the like.
using StatusLines = std::function<std::vector<std::string>(const Status&, const Screen&)>;
// Prints those, or JSON, as --json and --wide of the command line ask for. What a dead agent left
// behind is printed too, but it is no success.
ExitCode print_status(const Status& status, const Invocation& invocation, const StatusLines& lines);

}  // namespace gpushare
