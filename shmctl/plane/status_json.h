// SPDX-License-Identifier: Apache-2.0
// A PlaneSnapshot as JSON and back: what the agent's socket answers to "status", what the tools
// print with --json, and how they read it where they cannot map the region. Every member is named
// once, in status_json.cc, for both ways. What is not known is null, never 0. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/base/error.h"
#include "shmctl/plane/snapshot.h"

namespace gpushare {

// {"agent":{...},"gpus":[...],"tenants":[...],"processes":[...]} on one line, without the newline.
// The ledger is left out. Bytes of command lines that are not UTF-8 are replaced.
std::string status_json(const PlaneSnapshot& snapshot);

// Members that are missing keep their defaults and others are ignored, so that builds may differ.
// Error invalid_argument, with the place, when it is not JSON or a member has another type.
Result<PlaneSnapshot> parse_status_json(std::string_view text);

std::string_view priority_text(Priority priority);  // "idle", "normal", "high"
std::string_view state_text(ProcessState state);    // "frozen-cap", ... as in the JSON
std::string_view slo_state_text(SloState state);
std::string_view sharing_text(GpuSharing sharing);        // "time", "spatial", "slo"
std::string_view iteration_source_text(uint32_t source);  // "none", "recognised", "announced"

}  // namespace gpushare
