// SPDX-License-Identifier: Apache-2.0
// The locks that keep a second gpushared from a control plane, and from a driver: two agents with
// two control planes on one driver would undo what the other does. They are held for as long as the
// supervisor or its agent lives (the agent inherits the descriptors); --recover and --forget hold
// the first while they work. One that only processes hold that have died, with a thread in a call
// of the driver that does not come back, is taken over from them. Called at the start of the
// process, on its only thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

// Where the lock of the NVIDIA driver lies: in a folder that only root can write to.
inline constexpr const char* kDriverLock = "/run/gpushare/driver.lock";

struct InstanceLock {
  Fd file;
  std::vector<ProcessId> left;  // from whom it was taken over: each may still ask a GPU's driver
};

// Takes the lock of the control plane `region` ("/run/gpushare/region"), for which it waits for at
// most `patience`. It is released when the last copy of the descriptor is closed. Errors:
// device_or_resource_busy when another gpushared has it, and the detail says which process;
// operation_not_permitted when the lock belongs to another user; otherwise those of the system
// calls.
Result<InstanceLock> lock_instance(const std::string& region, Nanos patience = Nanos{});
// The same for what an agent drives: kDriverLock, or a file beside the socket of simulated GPUs. It
// does not wait.
Result<InstanceLock> lock_driver(const std::optional<std::string>& simulation);

}  // namespace gpushare
