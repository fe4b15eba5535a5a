// SPDX-License-Identifier: Apache-2.0
#include "tools/top/draw/graph.h"

#include <algorithm>
#include <array>

namespace gpushare {
namespace {

constexpr size_t kParts = 8;  // of a cell, by the block characters
constexpr std::array<std::string_view, kParts + 1> kBlocks{" ", "▁", "▂", "▃", "▄",
                                                           "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, kParts + 1> kFromLeft{" ", "▏", "▎", "▍", "▌",
                                                             "▋", "▊", "▉", "█"};

using Bounds = std::array<size_t, kInks + 1>;

// Where each ink ends, of `parts` in all. Each end is rounded by itself, so that errors do not sum.
Bounds bounds_of(const PastSecond& second, size_t parts) {
  Bounds bounds{};
  size_t sum = 0;
  for (size_t ink = 0; ink < bounds.size(); ++ink) {
    sum = std::min<size_t>(1000, sum + second.permille[ink]);
    bounds[ink] = (sum * parts + 500) / 1000;
  }
  return bounds;
}

Ink ink_at(const Bounds& bounds, size_t part) {
  for (size_t ink = 0; ink < bounds.size(); ++ink)
    if (part < bounds[ink]) return static_cast<Ink>(ink);
  return kNoInk;
}

// The ink of most of the parts from `first` to before `last`; of two, the lower one.
Ink most_of(const Bounds& bounds, size_t first, size_t last) {
  std::array<size_t, kInks + 2> counts{};
  for (size_t part = first; part < last; ++part) {
    const Ink ink = ink_at(bounds, part);
    ++counts[ink == kNoInk ? kInks + 1 : ink];
  }
  const auto most = static_cast<Ink>(std::ranges::max_element(counts) - counts.begin());
  return most == kInks + 1 ? kNoInk : most;
}

// The cell whose parts begin at `first`.
Span cell_of(const Bounds& bounds, size_t first, const TopScreen& screen,
             const std::array<std::string_view, kParts + 1>& blocks) {
  if (!screen.has_colours || screen.glyphs == Glyphs::kAscii) {
    const Ink ink = most_of(bounds, first, first + kParts);
    if (ink == kNoInk) return {" "};
    return {.text = std::string(1, ink_letter(ink)), .ink = ink};
  }
  const Ink low = ink_at(bounds, first);
  if (low == kNoInk) return {" "};
  const size_t end = std::min(bounds[low] - first, kParts);
  const Ink high = end == kParts ? kNoInk : most_of(bounds, first + end, first + kParts);
  return {.text = std::string(blocks[end]), .ink = low, .behind = high};
}

void append(std::vector<Span>& line, Span span) {
  if (!line.empty() && line.back().ink == span.ink && line.back().behind == span.behind)
    line.back().text += span.text;
  else
    line.push_back(std::move(span));
}

}  // namespace

std::vector<std::vector<Span>> draw_graph(const std::deque<PastSecond>& past,
                                          const TopScreen& screen) {
  std::vector<std::vector<Span>> lines(screen.height);
  const size_t shown = std::min(past.size(), screen.width);
  for (auto& line : lines) fill_line(line, shown, screen.width);
  for (size_t i = past.size() - shown; i < past.size(); ++i) {
    const Bounds bounds = bounds_of(past[i], screen.height * kParts);
    for (size_t y = 0; y < screen.height; ++y)
      append(lines[y], past[i].is_known
                           ? cell_of(bounds, (screen.height - 1 - y) * kParts, screen, kBlocks)
                           : Span{" "});
  }
  return lines;
}

std::vector<Span> draw_bar(const PastSecond& second, const TopScreen& screen) {
  std::vector<Span> line;
  const Bounds bounds = bounds_of(second, screen.width * kParts);
  for (size_t x = 0; x < screen.width; ++x) {
    Span cell = second.is_known ? cell_of(bounds, x * kParts, screen, kFromLeft) : Span{" "};
    if (cell.ink == kNoInk && second.is_known)
      cell = {.text = screen.glyphs == Glyphs::kUnicode ? "·" : ".", .style = Style::kDim};
    append(line, std::move(cell));
  }
  return line;
}

}  // namespace gpushare
