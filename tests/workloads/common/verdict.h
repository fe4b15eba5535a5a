// SPDX-License-Identifier: Apache-2.0
// How a workload whose result can be checked ends: with the checksum and the verdict in its last
// line, and with status 1 when the result is wrong.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {

inline constexpr std::string_view kKernelsAtFault = "a kernel did not do exactly its work";

// Prints `line` with the verdict. Ends the program with "spin: wrong result: FAULT" unless
// `is_right`.
inline void conclude(JsonLine line, uint32_t checksum, bool is_right, std::string_view fault) {
  line.add("checksum", fmt::format("{:08x}", checksum)).add("verified", is_right).print();
  if (!is_right) die(fmt::format("wrong result: {}", fault));
}

}  // namespace gpushare::workloads
