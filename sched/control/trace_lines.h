// SPDX-License-Identifier: Apache-2.0
// The lines of a trace, as they go to the clients of the control socket: one JSON object each,
// without its newline. sched/README.md documents them. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "sched/step/scheduler.h"

namespace gpushare {

// {"switch":...}: the GPU has started or stopped to run a process.
std::string trace_line(const SwitchRecord& record);
// {"event":...}: the agent has frozen or thawed a process, or set its time slice (in microseconds).
// `reason` is shown for a freeze only.
std::string trace_line(const Enforcer::Change& change, FreezeReason reason);
// {"turn":...}: a job's turn on a GPU has begun or ended.
std::string trace_line(const TurnChange& turn);
// {"end":...}: the time of the trace is over. `lost`: how many lines the client did not get.
std::string trace_end_line(uint64_t lost);

}  // namespace gpushare
