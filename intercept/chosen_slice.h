// SPDX-License-Identifier: Apache-2.0
// What a control that a process made means for its time slice. Pure; any thread.
#pragma once

#include <optional>

#include "intercept/event.h"

namespace gpushare {

// The slice that the process chose itself; none: it was another control, or the driver refused it.
inline std::optional<Micros> chosen_slice(const ControlMade& made) {
  constexpr uint32_t kSetTimeslice = 0xA06C0103;  // NVA06C_CTRL_CMD_SET_TIMESLICE
  if (made.command != kSetTimeslice || made.status != 0) return std::nullopt;
  return Micros(made.value);
}

}  // namespace gpushare
