// SPDX-License-Identifier: Apache-2.0
// Opens kernel tracepoints for BPF programs, also where no one has mounted tracefs (containers,
// minimal systems). Any thread.
#pragma once

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

// A perf event on tracepoint `name` ("sched/sched_process_exit"), for all processes and CPUs; a BPF
// program can be attached to it. Looks in the usual mount points of tracefs, then in an instance of
// its own that no one else sees. Errors: no_such_file_or_directory when the kernel does not have it
// or tracefs cannot be reached (the detail says which and what to do), else what the kernel said.
Result<Fd> open_tracepoint(const char* name);

}  // namespace gpushare
