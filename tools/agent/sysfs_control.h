// SPDX-License-Identifier: Apache-2.0
// Changes tenants where the kernel module is loaded, by writing its files. So what an operator sets
// does not need the agent, and a user who owns a tenant's files needs no other permission. The
// agent follows the files.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "shmctl/settings/sysfs_tree.h"
#include "tools/agent/protocol.h"

namespace gpushare {

// Does what the request "set", "remove" or "attach" asks for. Returns nullopt when the files are
// not there, or are not the caller's to write, so that the agent must be asked. The errors are like
// the agent's: the code is invalid_argument when the request was wrong.
std::optional<Result<>> change_in_sysfs(SysfsTree& tree, const Request& request);

}  // namespace gpushare
