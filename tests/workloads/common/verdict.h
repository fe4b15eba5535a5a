// SPDX-License-Identifier: Apache-2.0
// The end of a workload whose result can be checked: its last line has the checksum and the
// verdict, and its status is 1 when the result is wrong.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {

inline constexpr std::string_view kKernelsAtFault = "a kernel did not do exactly its work";

// Prints `line` with the verdict and returns 0. Ends the program with "spin: wrong result: FAULT"
// when `is_right` is false.
inline int conclude(JsonLine line, uint32_t checksum, bool is_right, std::string_view fault) {
  line.add("checksum", fmt::format("{:08x}", checksum)).add("verified", is_right).print();
  if (!is_right) die(fmt::format("wrong result: {}", fault));
  return 0;
}

}  // namespace gpushare::workloads
