// SPDX-License-Identifier: Apache-2.0
// Styled text, of which gpushare-top's screen consists: plain values that frame.h composes, tests
// read and terminal.h paints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/view/process_table.h"

namespace gpushare {

enum class Style : uint8_t { kPlain, kBold, kDim, kGood, kWarning, kBad, kTitle, kSorted };

// The colour of a tenant, the same wherever it is shown. kOthers stands for all tenants that have
// no colour of their own.
using Ink = uint8_t;
inline constexpr Ink kInks = 7;
inline constexpr Ink kOthers = kInks;
inline constexpr Ink kNoInk = 0xFF;

struct Span {
  std::string text;
  Style style = Style::kPlain;
  Ink ink = kNoInk;     // of the text
  Ink behind = kNoInk;  // of the cells that the text stands in
};

struct FrameLine {
  std::vector<Span> spans;
  bool is_selected = false;
};

// Its lines from top to bottom.
using Frame = std::vector<FrameLine>;

// Where a frame is to fit, and what can be shown there.
struct TopScreen {
  size_t width = 80;
  size_t height = 24;
  Glyphs glyphs = Glyphs::kAscii;
  bool has_colours = true;  // false: inks are told apart by letters (ink_letter())
};

// 'A' for the first ink; '*' for kOthers.
constexpr char ink_letter(Ink ink) { return ink < kInks ? static_cast<char>('A' + ink) : '*'; }

// Adds to `line` what makes it `width` columns wide, of which it has `used`.
inline void fill_line(std::vector<Span>& line, size_t used, size_t width) {
  if (used < width) line.push_back({std::string(width - used, ' ')});
}

}  // namespace gpushare
