// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/command_line.h"

namespace gpushare {

const ProgramSpec& demo_spec() {
  static const ProgramSpec spec{
      .name = "gpushare-demo",
      .summary = "unmodified programs share a GPU by weight, cap and priority.",
      .options = {{.name = "sim", .help = "Use a simulated GPU, also where there is a real one."},
                  {.name = "gpu", .help = "Use the GPU; fail where there is none."},
                  {.name = "seconds",
                   .value = "SECONDS",
                   .help = "How long to measure, 1 to 3600 (10)."},
                  {.name = "out",
                   .letter = 'o',
                   .value = "FILE",
                   .help = "Where to write the trace (demo-trace.json beside bin/).",
                   .offers = Offers::kFiles},
                  {.name = "json", .help = "Print the result as JSON, progress to stderr."}},
      .details =
          "Starts an agent of its own and five programs: two with weights 300 and 100, one capped "
          "at 20 %, one of the idle class, and a service that needs 100 us every 5 ms. Compares "
          "what each got with what its settings promise, then stops all of it. The exit code is 1 "
          "when a share is off by more than 3 points. On a GPU it needs root.",
      .examples = {"gpushare-demo", "gpushare-demo --sim --seconds 3 --json"},
  };
  return spec;
}

}  // namespace gpushare
