// SPDX-License-Identifier: Apache-2.0
// What an agent that ended has left is undone by the program itself: before it starts a supervisor
// or an agent, and on `gpushared --recover`. Called by its main function, on its first thread; a
// driver that does not answer is given up after seconds.
#pragma once

#include <string>

#include "sched/daemon/agent.h"
#include "shmctl/base/error.h"
#include "shmctl/program/command_line.h"

namespace gpushare {

// An earlier version had its region elsewhere, in `former`. What an agent of it that died has left
// there is undone, and the region removed; where that cannot be, the log says why, and it stays.
void recover_former(const std::string& former, const AgentOptions& options);

// `gpushared --recover`: undoes what the region lists, and prints it. Ends an agent that a signal
// has stopped and that holds the region's lock. kExitFailure: something is not undone.
ExitCode recover_all(AgentOptions options);

}  // namespace gpushare
