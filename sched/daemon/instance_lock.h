// SPDX-License-Identifier: Apache-2.0
// One agent per control plane: a lock beside the region, held by supervisor and agent for as long
// as either lives (the descriptor is inherited), and by --recover while it works.
#pragma once

#include <string>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

// Waits for it until `patience` is over. Error device_or_resource_busy: another one runs, the
// detail says so; others: the lock file could not be made, or is not ours.
Result<Fd> lock_instance(const std::string& region, Nanos patience = Nanos{});

}  // namespace gpushare
