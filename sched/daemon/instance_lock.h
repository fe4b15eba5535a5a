// SPDX-License-Identifier: Apache-2.0
// The locks that keep a second gpushared from a control plane, and from a driver: two agents with
// two control planes on one driver would undo what the other does. They are held for as long as the
// supervisor or its agent lives (the agent inherits the descriptors), and by --recover while that
// works. Called at the start of the process, on its only thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

// Where the lock of the NVIDIA driver lies: in a folder that only root can write to.
inline constexpr const char* kDriverLock = "/run/gpushare/driver.lock";

// Takes the lock of the control plane `region` ("/gpushare") and that of the driver: kDriverLock,
// or a file beside the socket of the simulated GPUs. Waits for at most `patience` for each. They
// are released when the last copies of the descriptors are closed. Errors: device_or_resource_busy
// when another gpushared has one, and the detail says which process; operation_not_permitted when a
// lock belongs to another user; otherwise those of the system calls.
Result<std::vector<Fd>> lock_instance(const std::string& region,
                                      const std::optional<std::string>& simulation,
                                      Nanos patience = Nanos{});

}  // namespace gpushare
