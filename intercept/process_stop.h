// SPDX-License-Identifier: Apache-2.0
// Stops a whole process and lets it go on, as a terminal's ^Z and `fg` do. For clients of an MPS
// server, whose channels cannot be frozen alone: one that is stopped launches nothing more, what it
// has launched ends by itself, and its neighbours run on.
//
// Any thread. A pid that belongs to another process by now is left alone. Errors: no_such_process,
// operation_not_permitted.
#pragma once

#include "intercept/event.h"
#include "shmctl/base/error.h"

namespace gpushare {

Result<> stop_process(const ProcessId& process);    // SIGSTOP
Result<> resume_process(const ProcessId& process);  // SIGCONT; harmless to one that runs

}  // namespace gpushare
