// SPDX-License-Identifier: Apache-2.0
// Undoes what the ledger lists: thaws what is frozen, restores changed slices. Called by the
// supervisor when the agent died, by `gpushared --recover`, and by an agent that starts and finds
// entries. Never while the agent that wrote them lives.
//
// Idempotent: entries go only when what they list is undone, and doing it twice does no harm (a
// surplus thaw is harmless). A process is touched only if it is still the one listed (pid and start
// time); of one that is gone the driver has dropped everything itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

struct RecoveryReport {
  std::vector<ProcessId> thawed;  // each once
  uint32_t slices_restored = 0;
  uint32_t gone = 0;                // entries of processes that ended
  std::vector<std::string> errors;  // what could not be undone; its entries stay
};

// Thaws first, all of a GPU in one call; then the slices.
RecoveryReport recover(Gpu& gpu, Region& region, const ProcReader& processes);

}  // namespace gpushare
