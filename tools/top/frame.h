// SPDX-License-Identifier: Apache-2.0
// Composes gpushare-top's screen as styled text. Pure: the tests read it, and terminal.h paints it.
#pragma once

#include <string>
#include <vector>

#include "tools/top/model.h"

namespace gpushare {

enum class Style { kPlain, kBold, kDim, kGood, kWarning, kBad, kTitle };

struct Span {
  std::string text;
  Style style = Style::kPlain;
};

struct FrameLine {
  std::vector<Span> spans;
  bool is_selected = false;
};

// It has exactly `height` lines, each at most `width` columns wide.
using Frame = std::vector<FrameLine>;
Frame compose(const TopModel& model, size_t width, size_t height, Glyphs glyphs);

// The keys and what they do, for the help screen; the test of the man page reads them too.
struct KeyHelp {
  std::string_view keys;
  std::string_view text;
};
std::span<const KeyHelp> top_keys();

// Returns how many lines of the list compose() shows at this height. Page Up and Page Down move by
// that many.
size_t rows_visible(const TopModel& model, size_t height);

}  // namespace gpushare
