// SPDX-License-Identifier: Apache-2.0
// Which processes have a file open: for a lock that cannot be had, to know who has it. Reads all of
// /proc. Called on the first thread of a process that starts.
#pragma once

#include <vector>

#include "shmctl/base/fd.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

// The processes but this one that have the file open which `file` names, as far as this one may
// look into them: there may be more, of another user or in another pid namespace. One that has died
// has it open for as long as a thread of it is left. One whose start time cannot be read now has 0.
std::vector<ProcessId> others_that_hold(const Fd& file);

}  // namespace gpushare
