// SPDX-License-Identifier: Apache-2.0
// Composes the list of gpushare-top: the titles of its columns, and its lines. Pure.
#pragma once

#include <optional>
#include <vector>

#include "tools/top/model/model.h"
#include "tools/top/model/styled.h"

namespace gpushare {

class ListColumns {
 public:
  ListColumns(const TopModel& model, const TopScreen& screen);

  FrameLine heading() const;
  // A line of the model's list.
  FrameLine line(const TopLine& of) const;
  // Whose title stands at this place of the heading.
  std::optional<Field> title_at(size_t x) const;

 private:
  FrameLine process_line(const TopLine& of) const;
  FrameLine group_line(const TopLine& of) const;

  const TopModel& model_;
  TopScreen screen_;
  std::vector<PlacedColumn> placed_;  // `index` is a Field
};

// The lines that are on a screen with room for so many: whole pages, so that rows do not slide
// under the eye while the choice moves. Returns the first and the one behind the last.
std::pair<size_t, size_t> shown_lines(const TopModel& model, size_t room);

}  // namespace gpushare
