// SPDX-License-Identifier: Apache-2.0
// What policies for target times ask of the processes with the shim in a snapshot. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "sched/policy/policy.h"

namespace gpushare {

using ShimViews = std::span<const ProcessView* const>;

// By tenant; valid as long as the snapshot.
std::map<uint32_t, std::vector<const ProcessView*>> shim_processes(const Snapshot& snapshot);

// Whether what a process says of its iterations may be counted: it announces them, or the
// recogniser is sure enough.
bool is_trusted(const IterationsView& said);

// Drops what is kept of processes that are not among these.
template <class Kept>
void forget_others(std::map<ProcessId, Kept>& kept, ShimViews processes) {
  std::erase_if(kept, [&](const auto& entry) {
    return std::ranges::find(processes, entry.first, &ProcessView::process) == processes.end();
  });
}

}  // namespace gpushare
