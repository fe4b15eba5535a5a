// SPDX-License-Identifier: Apache-2.0
// Late attach: the driver objects of a process that was there before us. RM tells the class and the
// parent of any handle of a client to whoever holds that client's own descriptor, and handles are
// small and dense: a client is 0xC1D00000 + n, n counting up in the machine; the objects that
// libcuda makes are 0x5C000000 + n, n counting up in the process. So we take a copy of each of its
// /dev/nvidiactl descriptors and ask (2.9 us a question on an H200).
#pragma once

#include <memory>

#include "intercept/event.h"
#include "intercept/gpu.h"
#include "intercept/nvrm/client.h"

namespace gpushare::nvrm {

// The events that would have been seen, parents first, from a ProcessOpened with nothing in it (the
// caller knows the process) on; without MemoryAllocated (sizes cannot be asked for). None: no
// client was found among the last 65,536 (fewer where it holds several descriptors without one).
// no_such_process when it has ended. `ours` outlives the search.
std::unique_ptr<ObjectSearch> find_objects(const RmClient& ours, ProcessId process);

}  // namespace gpushare::nvrm
