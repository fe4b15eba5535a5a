// SPDX-License-Identifier: Apache-2.0
// The lock that keeps a second gpushared from a control plane. It is held for as long as the
// supervisor or its agent lives (the agent inherits the descriptor), and by --recover while that
// works. Called at the start of the process, on its only thread.
#pragma once

#include <string>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

// Takes the lock of the control plane `region` ("/run/gpushare/region"), for which it waits for at
// most `patience`. The lock is released when the last copy of the descriptor is closed. Errors:
// device_or_resource_busy when another gpushared holds it; operation_not_permitted when the lock
// belongs to another user; otherwise those of shm_open(), fcntl(), fstat() and flock().
Result<Fd> lock_instance(const std::string& region, Nanos patience = Nanos{});

}  // namespace gpushare
