// SPDX-License-Identifier: Apache-2.0
// The demo itself: the service alone, then all programs together, measured and traced.
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

// What happens, as it happens. `step`: a line; `shares`: once a second, those of the last one, and
// how long the measurement has run (negative: it has not begun).
struct DemoProgress {
  std::function<void(const std::string&)> step;
  std::function<void(Nanos, const DemoShares&)> shares;
};

// Blocks for the whole length. All programs that it started have ended when it returns. Error: what
// failed, or operation_canceled on a signal.
Result<DemoResult> run_demo(DemoSetup& setup, Wait& wait, const DemoOptions& options,
                            const DemoProgress& progress);

}  // namespace gpushare
