// SPDX-License-Identifier: Apache-2.0
// Opens descriptors that pin a process: while one is open, the kernel gives the process's pid to no
// other process. Any thread may call.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

// Opens a descriptor of the process `pid` that started at `start_ticks` (proc_stat.h), or of
// whichever process has the pid when `start_ticks` is 0. Error no_such_process when the process has
// ended or another one has its pid by now; any other error (too_many_files_open, for example) says
// nothing of the process. `step` says in the error what the caller attempted.
Result<Fd> open_pidfd(pid_t pid, uint64_t start_ticks, const char* step);

}  // namespace gpushare
