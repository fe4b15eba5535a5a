// SPDX-License-Identifier: Apache-2.0
#include "tools/base/table.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace gpushare {
namespace {

size_t total_width(std::span<const PlacedColumn> placed) {
  size_t width = placed.empty() ? 0 : placed.size() - 1;
  for (const PlacedColumn& column : placed) width += column.width;
  return width;
}

// Takes one character at a time from the widest that can give: no column starves another.
void shrink(std::vector<PlacedColumn>& placed, std::span<const Column> columns, size_t width) {
  const auto smallest = [&](const PlacedColumn& column) {
    return std::max(columns[column.index].min_width, columns[column.index].title.size());
  };
  for (size_t total = total_width(placed); total > width; --total) {
    PlacedColumn* widest = nullptr;
    for (PlacedColumn& column : placed)
      if (column.width > smallest(column) && (widest == nullptr || column.width > widest->width))
        widest = &column;
    if (widest == nullptr) return;
    --widest->width;
  }
}

std::string line_of(const std::vector<PlacedColumn>& placed, std::span<const Column> columns,
                    const auto& cell) {
  std::string line;
  for (const PlacedColumn& column : placed) {
    if (column.x > 0) line += ' ';
    line += padded(cell(column.index), column.width, columns[column.index].align);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::vector<PlacedColumn> fit_columns(std::span<const Column> columns,
                                      std::span<const size_t> contents, size_t width) {
  assert(columns.size() == contents.size());
  std::vector<PlacedColumn> placed;
  for (size_t i = 0; i < columns.size(); ++i) {
    const size_t smallest = std::max(columns[i].min_width, columns[i].title.size());
    const size_t largest = width == kUncut ? contents[i] : columns[i].max_width;
    placed.push_back({i, 0, std::clamp(contents[i], smallest, std::max(smallest, largest))});
  }
  shrink(placed, columns, width);
  while (placed.size() > 1 && total_width(placed) > width) {
    const auto least = std::ranges::min_element(
        placed, {}, [&](const PlacedColumn& column) { return columns[column.index].importance; });
    // Among columns that must stay the last ones go.
    placed.erase(columns[least->index].importance < Column::kAlways ? least : placed.end() - 1);
  }
  if (placed.size() == 1) placed.front().width = std::min(placed.front().width, width);
  // Room that a dropped column left goes back to those that had to shrink.
  for (size_t free = width - std::min(width, total_width(placed)); PlacedColumn & column : placed) {
    const size_t wanted = std::min(contents[column.index], columns[column.index].max_width);
    const size_t grown = std::min(free, wanted - std::min(wanted, column.width));
    column.width += grown;
    free -= grown;
  }
  size_t x = 0;
  for (PlacedColumn& column : placed) {
    column.x = x;
    x += column.width + 1;
  }
  return placed;
}

std::vector<std::string> Table::lines(size_t width) const {
  std::vector<size_t> contents(columns_.size(), 0);
  for (const auto& row : rows_) {
    assert(row.size() == columns_.size());
    for (size_t i = 0; i < row.size(); ++i)
      contents[i] = std::max(contents[i], display_width(row[i]));
  }
  const auto placed = fit_columns(columns_, contents, width);
  std::vector<std::string> lines{
      line_of(placed, columns_, [&](size_t i) { return columns_[i].title; })};
  for (const auto& row : rows_)
    lines.push_back(line_of(placed, columns_, [&](size_t i) { return std::string_view(row[i]); }));
  return lines;
}

}  // namespace gpushare
