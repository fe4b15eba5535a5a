// SPDX-License-Identifier: Apache-2.0
#include "tools/base/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tools/view/process_table.h"

namespace gpushare {
namespace {

TEST(Table, ShowsEverythingWhereThereIsRoom) {
  Table table({{"NAME", 4, 20, Align::kLeft, Column::kAlways}, {"N", 1, 5, Align::kRight, 1}});
  table.add({"alpha", "1"});
  table.add({"b", "12345"});
  EXPECT_EQ(table.lines(80),
            (std::vector<std::string>{"NAME      N", "alpha     1", "b     12345"}));
}

TEST(Table, ShrinksBeforeItDropsAndDropsTheLeastImportant) {
  Table table({{"ID", 2, 2, Align::kLeft, Column::kAlways},
               {"TEXT", 4, 20, Align::kLeft, 5},
               {"X", 3, 3, Align::kLeft, 1}});
  table.add({"11", "abcdefgh", "xyz"});
  EXPECT_EQ(table.lines(15)[1], "11 abcdefgh xyz");
  EXPECT_EQ(table.lines(11)[1], "11 abc~ xyz");
  EXPECT_EQ(table.lines(10)[1], "11 abcdef~");  // X is gone, TEXT has its room
  EXPECT_EQ(table.lines(5)[1], "11");
  EXPECT_EQ(table.lines(1)[1], "~");
}

TEST(Table, UncutShowsEverythingWhateverItsColumnsAllow) {
  Table table({{"ID", 2, 2, Align::kLeft, Column::kAlways}, {"TEXT", 4, 5, Align::kLeft, 5}});
  table.add({"11", "abcdefgh"});
  EXPECT_EQ(table.lines(80)[1], "11 abcd~");
  EXPECT_EQ(table.lines(kUncut)[1], "11 abcdefgh");
}

TEST(FitColumns, PlacesAnythingWithoutOverlapAtAnyWidth) {
  std::mt19937 random(1);
  const auto upto = [&random](size_t most) { return random() % (most + 1); };
  for (int round = 0; round < 3000; ++round) {
    std::vector<Column> columns(1 + upto(11));
    std::vector<size_t> contents(columns.size());
    for (size_t i = 0; i < columns.size(); ++i) {
      const size_t smallest = upto(12);
      columns[i] = {std::string_view("TITLETITLE").substr(0, upto(8)), smallest,
                    smallest + upto(30), Align::kLeft,
                    upto(4) == 0 ? Column::kAlways : static_cast<int>(upto(9))};
      contents[i] = upto(60);
    }
    const size_t width = upto(300);
    const auto placed = fit_columns(columns, contents, width);
    ASSERT_FALSE(placed.empty());
    size_t next = 0;
    for (const PlacedColumn& column : placed) {
      EXPECT_EQ(column.x, next);
      next = column.x + column.width + 1;
    }
    EXPECT_LE(next, width + 1);
    // A column is left out only after all that are less important.
    int least_shown = Column::kAlways;
    std::vector<bool> is_shown(columns.size());
    for (const PlacedColumn& column : placed) {
      is_shown[column.index] = true;
      least_shown = std::min(least_shown, columns[column.index].importance);
    }
    for (size_t i = 0; i < columns.size(); ++i)
      EXPECT_TRUE(is_shown[i] || columns[i].importance <= least_shown);
  }
}

TEST(FitColumns, EightyColumnsShowAProcessWithItsStateInFull) {
  std::vector<Column> columns;
  std::vector<size_t> contents;
  for (const FieldSpec& spec : kFields) {
    columns.push_back(spec.column);
    contents.push_back(spec.column.max_width);
  }
  std::vector<Field> shown;
  for (const PlacedColumn& column : fit_columns(columns, contents, 80)) {
    shown.push_back(kFields[column.index].field);
    EXPECT_TRUE(shown.back() != Field::kState ||
                column.width >= std::string("frozen: user").size());
  }
  for (Field field : {Field::kGpu, Field::kPid, Field::kUser, Field::kTenant, Field::kCommand,
                      Field::kTarget, Field::kShare, Field::kState})
    EXPECT_NE(std::ranges::find(shown, field), shown.end()) << static_cast<int>(field);
}

}  // namespace
}  // namespace gpushare
