// SPDX-License-Identifier: Apache-2.0
// Runs the demo: first the service alone, then all programs together, which it measures and traces.
#pragma once

#include <functional>
#include <string>

#include "tools/demo/report.h"
#include "tools/demo/setup.h"

namespace gpushare {

struct DemoOptions {
  Nanos measured{};   // how long
  std::string trace;  // path of the file to write
};

// Told as the demo goes on. `step` gets a line. `shares` gets, once a second, the shares of the
// last second and how long the measurement has run, which is negative before it begins.
struct DemoProgress {
  std::function<void(const std::string&)> step;
  std::function<void(Nanos, const DemoShares&)> shares;
};

// Blocks for the whole length. When it returns, all programs that it started have ended. The error
// says what failed, or is operation_canceled after a signal.
Result<DemoResult> run_demo(DemoSetup& setup, Wait& wait, const DemoOptions& options,
                            const DemoProgress& progress);

}  // namespace gpushare
