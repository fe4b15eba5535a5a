// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/job_checks.h"

#include <fmt/format.h>

#include "tools/base/format.h"

namespace gpushare {
namespace {

std::string name_of(const ProcessRecord& process) {
  return fmt::format("{} (pid {})", printable({process.command, sizeof process.command}),
                     process.pid);
}

}  // namespace

std::optional<Finding> find_rough_stop(const PlaneSnapshot& snapshot) {
  for (const auto& [slot, process] : snapshot.processes) {
    if (process.turn == TurnState::kFree) continue;
    const auto had = static_cast<double>(process.job_service_ns);
    if (process.job_iterations == 0) {
      if (had < static_cast<double>(kToShowIterations.count())) continue;
      return Finding{"jobs", Finding::Severity::kWarning,
                     fmt::format("{} has used a GPU for {:.0f} s and no iterations of it are "
                                 "known: it is stopped in mid-kernel when its turn ends",
                                 name_of(process), had / 1e9),
                     "start it with gpushare run --shim; where that was done, none was recognised: "
                     "announce them (gpushare.h)"};
    }
    const double mean = had / static_cast<double>(process.job_iterations);
    if (mean > static_cast<double>(kLongestGrace.count()))
      return Finding{
          "jobs", Finding::Severity::kWarning,
          fmt::format("an iteration of {} takes {:.1f} s, and its end is waited for {:.0f} "
                      "s at most by default: it is stopped in mid-kernel",
                      name_of(process), mean / 1e9,
                      static_cast<double>(kLongestGrace.count()) / 1e9),
          "set grace_ms of the GPU above that time, if others may wait so long"};
  }
  return std::nullopt;
}

}  // namespace gpushare
