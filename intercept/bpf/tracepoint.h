// SPDX-License-Identifier: Apache-2.0
// Opens kernel tracepoints for BPF programs, also where tracefs is not mounted (containers, minimal
// systems). Any thread may call.
#pragma once

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

struct bpf_link;
struct bpf_program;

namespace gpushare {

// A BPF program, the tracepoint that it belongs to, and where its object keeps the link between
// them.
struct Attachment {
  bpf_program* program;
  const char* tracepoint;
  bpf_link*& link;
};

// Opens a perf event on the tracepoint `name` ("sched/sched_process_exit"), for all processes and
// CPUs, to which a BPF program can be attached. Looks for tracefs in its usual mount points, then
// in a private instance. Error no_such_file_or_directory when the kernel does not have the
// tracepoint or tracefs cannot be reached (the detail says which, and what to do); otherwise the
// kernel's error.
Result<Fd> open_tracepoint(const char* name);

}  // namespace gpushare
