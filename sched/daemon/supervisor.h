// SPDX-License-Identifier: Apache-2.0
// Supervisor: keeps the agent running, and undoes what the agent did to the GPUs when it dies. It
// opens its own connection to the GPUs at the start, so that little can fail later, and then only
// waits for signals. It has one thread besides those of the lifeline, the slot keeper and the
// undoing, which alone ask the driver, and no event loop.
// - The agent dies (lifeline.h tells it within about a millisecond): everything in the ledger is
//   thawed and restored (undoing.h), programs that wait for credit go on
//   (shmctl/shim/slot_keeper.h), and the agent is started again, with growing pauses while it dies
//   young. What could not be undone is tried again, and a GPU that does not answer is waited for,
//   until an agent runs.
// - The agent dies, and a thread of it does not come back from a call of the driver
//   (predecessors.h): all but the GPU that was asked is undone, and the next agent is started.
// - The agent hangs and keeps processes frozen (stall_watch.h): it is killed, and the same follows.
// - The kernel module comes (file_watch.h): the agent is asked to thaw everything and to end, and
//   the next agent takes the tenants into the module.
// - The supervisor dies: the agent gets SIGTERM from the kernel and stops cleanly.
// - Both die: `gpushared --recover` does the same as the supervisor.
#pragma once

#include <string>
#include <vector>

#include "sched/daemon/agent.h"

namespace gpushare {

// Runs until SIGTERM or SIGINT; passes SIGHUP on to the agent. `arguments`: the argv for the agent,
// the program's name included; the program that is executed is the calling one, and the internal
// options of gpushared_main.cc are appended. Returns the exit code for the process: 0, 1 when there
// is no control plane or something that was done to a program is not undone, or the exit code of a
// first agent that could not start.
int run_supervisor(const AgentOptions& options, const std::vector<std::string>& arguments);

}  // namespace gpushare
