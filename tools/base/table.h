// SPDX-License-Identifier: Apache-2.0
// Fits columns into a given width. Pure: gpushare prints whole tables with it, and gpushare-top
// places its cells with it. The width of a column follows its contents between two bounds. If there
// is too little room, wide columns shrink first; then columns are dropped, the least important
// first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/base/format.h"

namespace gpushare {

struct Column {
  std::string_view title{};
  size_t min_width = 1;  // never narrower; never narrower than the title either
  size_t max_width = 1;  // never wider
  Align align = Align::kLeft;
  int importance = 0;  // the least important is dropped first; kAlways: never
  static constexpr int kAlways = 1000;
};

struct PlacedColumn {
  size_t index = 0;  // of the columns given
  size_t x = 0;
  size_t width = 0;
};

// A width at which nothing is cut: each column is as wide as its contents.
inline constexpr size_t kUncut = SIZE_MAX;

// `contents[i]` is the widest content of column i. The columns are placed from left to right with
// one blank between two, all within `width`. Of the columns of kAlways at least the first is
// placed, and cut to `width` if need be.
std::vector<PlacedColumn> fit_columns(std::span<const Column> columns,
                                      std::span<const size_t> contents, size_t width);

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool is_empty() const { return rows_.empty(); }
  // Returns the heading and the rows, each line at most `width` wide and without trailing blanks.
  std::vector<std::string> lines(size_t width) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gpushare
