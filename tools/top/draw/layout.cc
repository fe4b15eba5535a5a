// SPDX-License-Identifier: Apache-2.0
#include "tools/top/draw/layout.h"

#include <algorithm>

namespace gpushare {
namespace {

size_t rows_of(size_t panels, size_t columns) { return (panels + columns - 1) / columns; }

// Chooses the panels' columns and height for `lines` lines, and returns the lines that they take.
size_t arrange_panels(TopLayout& layout, size_t width, size_t lines, size_t gpu_count,
                      bool has_graphs) {
  const size_t most = std::clamp<size_t>(width / kPanelWidth, 1, std::max<size_t>(gpu_count, 1));
  for (size_t columns = 1; has_graphs && columns <= most; ++columns) {
    const size_t height = lines / std::max<size_t>(1, rows_of(gpu_count, columns));
    if (height < kGraphPanel) continue;
    layout.panel_columns = columns;
    layout.panel_height = std::min(height, kTallestPanel);
    return rows_of(gpu_count, columns) * layout.panel_height;
  }
  while (layout.panel_columns < most && rows_of(gpu_count, layout.panel_columns) > lines)
    ++layout.panel_columns;
  return std::min(lines, rows_of(gpu_count, layout.panel_columns));
}

}  // namespace

TopLayout arrange(size_t width, size_t height, size_t gpu_count, size_t warning_count,
                  bool has_graphs) {
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
  if (layout.gpus.height > 0)
    layout.gpus.height =
        arrange_panels(layout, width, layout.gpus.height + left, gpu_count, has_graphs);
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
