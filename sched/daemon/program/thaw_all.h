// SPDX-License-Identifier: Apache-2.0
// Where nothing says what an agent that ended has frozen: all channels of all programs are thawed.
// Called by the program itself before an agent runs, on its first thread. Each GPU is asked on a
// thread of its own, so that one that does not answer keeps nobody frozen on the others.
#pragma once

#include "sched/daemon/agent.h"
#include "shmctl/base/error.h"

namespace gpushare {

// What is refused is tried again for kPatience, and what does not answer is given up after as long.
// Logs which programs are stopped (SIGSTOP), as those that gpushare freezes beside others in MPS
// are: who has stopped them is not known. No driver at all is no error, as nothing can be frozen
// then. Error: something may still be frozen.
Result<> thaw_all_programs(const AgentOptions& options);

}  // namespace gpushare
