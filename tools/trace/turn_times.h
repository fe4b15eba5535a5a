// SPDX-License-Identifier: Apache-2.0
// Whose turn it was on each GPU, and how long, from what the agent streams. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/agent/protocol.h"

namespace gpushare {

struct TurnTime {
  uint32_t gpu = 0;
  pid_t pid = 0;  // of the job's first process
  std::string job;
  uint64_t begin_ns = 0, end_ns = 0;
  bool operator==(const TurnTime&) const = default;
};

// Ordered by GPU and time, within [start_ns, end_ns]. A GPU has one turn at a time: where a job is
// let in a moment before the last one stands, the turn of the last one ends there. A turn whose
// begin was not recorded begins with the recording, one without an end lasts until the next one or
// until the end of the recording. Records may come in any order, and more than once.
std::vector<TurnTime> turn_times(const std::vector<TraceTurn>& turns, uint64_t start_ns,
                                 uint64_t end_ns);

}  // namespace gpushare
