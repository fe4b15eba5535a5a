// SPDX-License-Identifier: Apache-2.0
#include "tools/top/layout.h"

#include <algorithm>

namespace gpushare {

TopLayout arrange(size_t height, size_t gpu_count, size_t warning_count) {
  TopLayout layout;
  // Bands in the order in which they get their lines; rows have the first one.
  size_t left = height;
  const auto grant = [&left](Band& band, size_t wanted) {
    const size_t given = std::min(left, wanted);
    band.height += given;
    left -= given;
  };
  grant(layout.rows, 1);
  grant(layout.gpus, std::min<size_t>(1, gpu_count));
  grant(layout.agent, 1);
  grant(layout.heading, 1);
  grant(layout.footer, 1);
  // Of what is left, half of the screen is the rows'; they have one line of it.
  left -= std::min(left, height / 2 - std::min<size_t>(height / 2, 1));
  grant(layout.warnings, warning_count);
  grant(layout.gpus, gpu_count - layout.gpus.height);
  layout.rows.height = height - layout.gpus.height - layout.agent.height - layout.heading.height -
                       layout.footer.height - layout.warnings.height;

  size_t y = 0;
  for (Band* band : {&layout.agent, &layout.warnings, &layout.gpus, &layout.heading, &layout.rows,
                     &layout.footer}) {
    band->y = y;
    y += band->height;
  }
  return layout;
}

}  // namespace gpushare
