// SPDX-License-Identifier: Apache-2.0
// What is left of a process of ours that has died: a thread that is in a call of a driver which
// does not come back ends when that call does, and until then the process can neither be reaped nor
// does it give up its files. It runs no instruction of its program any more, so all that it may
// still do is what that one call does. Threads that ask a GPU's driver carry the GPU's number in
// their name, by which whoever comes after them knows which GPU that is. Any thread may call.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

// Gives the calling thread the name of one that asks the driver of this GPU, or of all of them.
void name_gpu_thread(uint32_t gpu);
void name_all_gpus_thread();

struct LastThread {
  pid_t tid = 0;
  std::string name;
  char state = '?';  // as in ProcStat
};

// The threads of a process that have not ended; empty: there is none. A thread that ends meanwhile
// may be among them. `root` is /proc except in tests. Error: they cannot be listed now.
Result<std::vector<LastThread>> threads_of(pid_t pid, const std::string& root = "/proc");

// Whether the process has died though threads of it may be left: its first thread has ended or is
// about to, or a SIGKILL waits for it, or it is gone. A `start_ticks` of 0 stands for whichever
// process has the pid. False also when it cannot be known.
bool has_died(const ProcessId& process, const std::string& root = "/proc");

// Whether a thread of the process may be in a call of this GPU's driver: one with its name is left,
// or the process has died and its first thread, which may be in any call, is left. True also when
// it cannot be known.
bool may_ask_gpu(const ProcessId& process, uint32_t gpu, const std::string& root = "/proc");

}  // namespace gpushare
