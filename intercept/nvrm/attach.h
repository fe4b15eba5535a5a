// SPDX-License-Identifier: Apache-2.0
// Late attach: finds the driver objects of a process that opened the driver before the agent
// started. RM tells the class and the parent of any handle to a process that holds a descriptor of
// the client, so the search takes a copy of each of the process's /dev/nvidiactl descriptors and
// asks for one handle after the other (2.9 us a question on an H200). Handles are dense: clients
// are 0xC1D00000 + n with n counting up in the machine, and the objects that libcuda makes are
// 0x5C000000 + n with n counting up in the process. The agent's thread calls.
#pragma once

#include <memory>

#include "intercept/event.h"
#include "intercept/gpu.h"
#include "intercept/nvrm/client.h"

namespace gpushare::nvrm {

// The answer are the events that would have been seen, parents first, beginning with an empty
// ProcessOpened (the caller knows the process), and without MemoryAllocated, because RM does not
// tell sizes. There are none when no client was found among the last 65,536 (fewer for a process
// with several descriptors). Error no_such_process when it has ended. `ours` must outlive the
// search.
std::unique_ptr<ObjectSearch> find_objects(const RmClient& ours, ProcessId process);

}  // namespace gpushare::nvrm
