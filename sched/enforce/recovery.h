// SPDX-License-Identifier: Apache-2.0
// Undoes what the ledger lists: thaws what is frozen, restores changed slices. Called by the
// supervisor when the agent died, by `gpushared --recover`, and by an agent that starts and finds
// entries. Never while the agent that wrote them lives.
//
// Idempotent: entries go only when what they list is undone, and doing it twice does no harm (a
// surplus thaw is harmless), or gone. Channels are thawed also when their owner's end is proven,
// because a child that inherited its descriptor keeps them; nothing else is done then.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/plane/layout.h"
#include "shmctl/plane/ledger.h"

namespace gpushare {

struct RecoveryReport {
  std::vector<ProcessId> thawed;  // each once
  uint32_t slices_restored = 0;
  uint32_t gone = 0;                // entries of processes that have ended
  std::vector<std::string> errors;  // what could not be undone; its entries stay
};

// Thaws first, all of a GPU in one call; then the slices.
RecoveryReport recover(Gpu& gpu, Region& region, const ProcReader& processes);
// The same for these groups alone, by the one who writes the ledger.
RecoveryReport recover(Gpu& gpu, Ledger& ledger, const ProcReader& processes,
                       const std::set<LedgerKey>& groups);

// Where no ledger says what is frozen: thaws all channels of all programs several times, because a
// surplus thaw is harmless. Returns how many programs there were. Processes that were stopped (MPS
// clients) are not resumed: whoever stopped them may have been somebody else.
Result<uint32_t> thaw_everything(Gpu& gpu);

}  // namespace gpushare
