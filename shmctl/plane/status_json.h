// SPDX-License-Identifier: Apache-2.0
// Writes a PlaneSnapshot as JSON and reads it back. The agent's socket answers this to "status",
// the tools print it with --json, and they read it where they cannot map the region. status_json.cc
// names every member once for both directions. What is not known is null, never 0. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/base/error.h"
#include "shmctl/plane/snapshot.h"

namespace gpushare {

// {"agent":{...},"gpus":[...],"tenants":[...],"processes":[...]} on one line, without the newline.
// The ledger is left out. Bytes of command lines that are not UTF-8 are replaced.
std::string status_json(const PlaneSnapshot& snapshot);

// Members that are missing keep their defaults and unknown ones are ignored, so that the two builds
// may differ. Error invalid_argument, with a detail that says why, when the text is not JSON or a
// member has another type or is out of range.
Result<PlaneSnapshot> parse_status_json(std::string_view text);

// The names in the JSON; "unknown" for a number that has none.
std::string_view priority_text(Priority priority);        // "idle", "normal", "high"
std::string_view state_text(ProcessState state);          // "running", "frozen-cap", ...
std::string_view slo_state_text(SloState state);          // "meets", "grows", ...
std::string_view turn_state_text(TurnState state);        // "free", "queued", "held", ...
std::string_view sharing_text(GpuSharing sharing);        // "time", "spatial", "slo"
std::string_view iteration_source_text(uint32_t source);  // "none", "recognised", "announced"
std::string_view phase_text(uint32_t phase);              // "none", "prefill", "decode"

}  // namespace gpushare
