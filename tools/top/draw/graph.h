// SPDX-License-Identifier: Apache-2.0
// Draws how a GPU's time was divided, as a stacked graph over time or as a bar of this second.
// Pure.
#pragma once

#include <deque>
#include <vector>

#include "tools/top/model/past.h"

namespace gpushare {

// `screen.height` lines of exactly `screen.width` columns, from top to bottom: a column for each
// second, the newest on the right. The height stands for the whole GPU; inks are stacked in their
// order. With Unicode and colours a column is told apart to an eighth of a line where at most two
// inks meet in a cell, otherwise to a line.
std::vector<std::vector<Span>> draw_graph(const std::deque<PastSecond>& past,
                                          const TopScreen& screen);

// One line of exactly `screen.width` columns, which stand for the whole GPU.
std::vector<Span> draw_bar(const PastSecond& second, const TopScreen& screen);

}  // namespace gpushare
