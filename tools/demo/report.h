// SPDX-License-Identifier: Apache-2.0
// Holds what the demo found out and formats it: the progress, the final table, JSON. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "tools/demo/measure.h"

namespace gpushare {

inline constexpr double kDemoLimitPoints = 3.0;  // a larger error of a share is a failure

// What the last line of a workload's output says.
struct WorkloadResult {
  bool is_verified = false;                  // its results were right
  std::optional<double> progress{};          // its own work as a part of the GPU, 0..1
  std::optional<double> p50_us{}, p99_us{};  // of periodic
  std::optional<double> ns_per_unit{};       // length of a unit of work
};
// The error is invalid_argument when `line` is no such line.
Result<WorkloadResult> parse_workload_result(const std::string& line);

struct DemoResult {
  bool is_simulated = false;
  std::string gpu_name{}, driver{};
  Nanos measured_for{};
  DemoShares shares{};
  std::vector<WorkloadResult> workloads{};  // by program
  WorkloadResult alone{};                   // periodic by itself
  std::string trace{};                      // path
};

// The largest |measured - target| in points, rounded to the tenth that is shown.
double max_error_points(const DemoShares& shares);

// Shown while the programs run: a bar for each program, with its target marked.
std::vector<std::string> progress_bars(const DemoShares& shares, size_t width);
// The same in one line: "gold 55.9 (56.0)  silver 18.7 (18.7) ..."
std::string progress_line(const DemoShares& shares);

// The last line is "max share error: X.X points".
std::vector<std::string> report_lines(const DemoResult& result, size_t width);
std::string report_json(const DemoResult& result);

}  // namespace gpushare
