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
  Band gpus;      // the panels of the GPUs, row by row
  Band heading;   // titles of the columns
  Band rows;
  Band footer;  // keys, questions, results

  // The panels stand side by side in so many columns. Those that do not fit are left out, and the
  // last line says so.
  size_t panel_columns = 1;
  size_t panel_height = 1;  // 1: a line each; otherwise with a graph
};

// A panel with a graph has a heading and a legend, and the graph itself takes 3 to 12 lines.
inline constexpr size_t kGraphPanel = 5;
inline constexpr size_t kTallestPanel = 14;
// Panels stand side by side only where each gets so many columns.
inline constexpr size_t kPanelWidth = 64;

// Every band but the warnings gets one line as far as the height goes, in the order rows, GPUs,
// agent, heading, footer. The warnings, and then the GPUs' panels, may take what is left above half
// of the screen: with graphs if they all fit with them, in as few columns as that takes.
// `has_graphs` is false when none are wanted.
TopLayout arrange(size_t width, size_t height, size_t gpu_count, size_t warning_count,
                  bool has_graphs = true);

}  // namespace gpushare
