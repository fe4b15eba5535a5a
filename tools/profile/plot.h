// SPDX-License-Identifier: Apache-2.0
// Draws a sweep: how long an iteration takes by its share of the SMs, with the knee and the target.
// Pure.
#pragma once

#include <cstddef>
#include <string>

#include "tools/profile/sweep.h"

namespace gpushare {

// Draws one line for each point in ASCII, at most `width` columns long (at least 60 are used):
//
//   python3 serve.py on NVIDIA H200
//   groups  SMs     mean      p99
//        1    8   48.2ms   51.0ms  ============================|======-
//        5   40   12.0ms   12.4ms  ==========                  |         knee
//
// '=' is the mean, '-' goes on to the p99, '|' is the target.
std::string draw_sweep(const Sweep& sweep, size_t width);

// Returns a whole SVG document: the mean and the p99 over the SMs, both axes from zero, and the
// knee and the target as lines.
std::string sweep_svg(const Sweep& sweep);

}  // namespace gpushare
