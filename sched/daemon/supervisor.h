// SPDX-License-Identifier: Apache-2.0
// Supervisor: keeps the agent running and undoes what it did when it dies. It starts the agent as a
// child (this program again, so that nothing is shared), opens its own way to the GPUs at once, so
// that nothing can fail later, and then only waits for signals. One thread and that of the
// lifeline, no event loop.
//
// The agent died, however (lifeline.h tells within a millisecond): everything in the ledger is
// thawed and restored, then it is started again; at once the first time, with growing pauses while
// it dies young. The agent hangs and keeps programs frozen (sched/daemon/stall_watch.h): it is
// killed, and the same follows. The supervisor died: the kernel tells the agent (PR_SET_PDEATHSIG),
// which then stops cleanly. Both died: `gpushared --recover`. The kernel module came
// (sched/daemon/file_watch.h): the agent is asked to thaw everything and end, and started again
// with the module, into which it takes the tenants.
#pragma once

#include <string>
#include <vector>

#include "sched/daemon/agent.h"

namespace gpushare {

// Runs until SIGTERM or SIGINT ends it. `program`: what to exec as the agent, with `arguments`
// (argv without the program's name); "--supervisor-pid P --restarts N --lifeline-fd F --module-fd
// M" is appended. SIGHUP is passed on. Returns the exit code for the process: 0, or that of an
// agent that could not start at all.
int run_supervisor(const AgentOptions& options, const std::vector<std::string>& arguments);

}  // namespace gpushare
