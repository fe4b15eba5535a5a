// SPDX-License-Identifier: Apache-2.0
// A sweep of one program over shares of the SMs, as a file holds it: how long its iteration took on
// every number of groups that was tried.
//
//   {"format": 1, "command": "python3 serve.py", "gpu": "NVIDIA H200", "sms": 132,
//    "sms_per_group": 8, "knee_groups": 5, "slo_us": 20000,
//    "points": [{"groups": 1, "iterations": 50, "mean_us": 48210.5, "p99_us": 51033.0}, ...]}
//
// knee_groups and slo_us may be missing or null.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"

namespace gpushare {

struct SweepPoint {
  uint32_t groups = 0;
  uint64_t iterations = 0;
  double mean_us = 0;
  double p99_us = 0;  // at least the mean
};

struct Sweep {
  std::string command, gpu;
  uint32_t sms = 0;
  uint32_t sms_per_group = 0;
  std::optional<uint32_t> knee_groups;
  std::optional<double> slo_us;
  std::vector<SweepPoint> points;  // by groups, each once; at least one

  // All groups together have all SMs.
  uint32_t sms_of(uint32_t groups) const {
    return (groups + 1) * sms_per_group > sms ? sms : groups * sms_per_group;
  }
};

// Refuses a sweep that does not make sense, so that drawing need not check it. The error says
// where.
Result<Sweep> parse_sweep(std::string_view json);
// Returns the text that parse_sweep() reads.
std::string sweep_json(const Sweep& sweep);

// Of fewer iterations the longest stands in place of the p99.
inline constexpr uint64_t kFewestForP99 = 100;
// Returns whether each point has so many.
bool has_p99(const Sweep& sweep);

// How far the means are off, as a part of themselves, as far as the points show it: the largest of
// twice the standard error that the p99 lets expect, and of how much longer an iteration took on
// more groups than on fewer. 0 means that nothing is off.
double noise_of(const Sweep& sweep);
// Returns whether that is more than the difference by which a knee is found.
bool is_knee_chance(const Sweep& sweep);

// Returns the fewest groups of those that were tried from which on none takes more than 5 % longer
// than the most groups. Requires: there are points.
uint32_t knee_of(const Sweep& sweep);

// Reads "1,2,4-8" as 1 2 4 5 6 7 8: each once, ascending. Returns nullopt if it is no such list, or
// if it names a number that is not in 1 to `most`.
std::optional<std::vector<uint32_t>> parse_groups(std::string_view text, uint32_t most);

}  // namespace gpushare
