// SPDX-License-Identifier: Apache-2.0
// Stops a whole process and resumes it, as ^Z and `fg` do in a terminal. The agent uses this for
// clients of an MPS server, whose channels cannot be frozen alone: a stopped client launches
// nothing more, what it launched runs to its end, and its neighbours run on. Any thread may call. A
// pid that belongs to another process by now is left alone. Errors: no_such_process,
// operation_not_permitted.
#pragma once

#include "intercept/event.h"
#include "shmctl/base/error.h"

namespace gpushare {

Result<> stop_process(const ProcessId& process);    // SIGSTOP
Result<> resume_process(const ProcessId& process);  // SIGCONT; harmless to a running process

}  // namespace gpushare
