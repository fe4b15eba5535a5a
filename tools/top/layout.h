// SPDX-License-Identifier: Apache-2.0
// Says where things are on gpushare-top's screen, for any size down to nothing: in bands of whole
// lines from top to bottom, which never overlap and together fill the height. Pure.
#pragma once

#include <cstddef>

namespace gpushare {

struct Band {
  size_t y = 0;
  size_t height = 0;  // 0: not shown
};

struct TopLayout {
  Band agent;     // how the agent is
  Band warnings;  // what is not as it should be
  Band gpus;      // a line per GPU; when there are more GPUs than lines, the last line says so
  Band heading;   // titles of the columns
  Band rows;
  Band footer;  // keys, questions, results
};

// Every band but the warnings gets one line as far as the height goes, in the order rows, GPUs,
// agent, heading, footer. The warnings, and then more GPUs, may take what is left above half of the
// screen.
TopLayout arrange(size_t height, size_t gpu_count, size_t warning_count);

}  // namespace gpushare
