// SPDX-License-Identifier: Apache-2.0
// Formats the lines of gpushare-top for tenants on GPUs that are divided by target times: what each
// wants, has and gets, in cells below each other. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "tools/base/table.h"
#include "tools/top/draw/frame.h"

namespace gpushare {

class TargetColumns {
 public:
  // For those of the model's lines that have a `use`.
  TargetColumns(const TopModel& model, size_t width);

  FrameLine line(const TopLine& of) const;

 private:
  std::vector<PlacedColumn> placed_;
};

}  // namespace gpushare
