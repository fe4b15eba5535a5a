// SPDX-License-Identifier: Apache-2.0
// Sends signals to processes with this user's rights.
#pragma once

#include "shmctl/base/error.h"
#include "tools/top/model/deeds.h"

namespace gpushare {

// It goes to that process or to none, even if its pid was used again meanwhile, unless its start
// time is unknown (0). Errors: no_such_process, permission_denied.
Result<> send_signal(const ProcessSignal& signal);

}  // namespace gpushare
