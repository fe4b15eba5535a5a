// SPDX-License-Identifier: Apache-2.0
// A descriptor that pins a process: while it is open, its pid goes to nobody else. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

// Of the process that started at `start_ticks` (proc_stat.h), 0: of whoever has the pid. Error
// no_such_process when it is gone or its pid is another's by now; `step` names what it is wanted
// for.
Result<Fd> open_pidfd(pid_t pid, uint64_t start_ticks, const char* step);

}  // namespace gpushare
