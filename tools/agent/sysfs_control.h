// SPDX-License-Identifier: Apache-2.0
// Changing tenants where the kernel module is loaded: its files are written directly, so that what
// an operator sets does not need the agent, and whoever owns a tenant's files needs no other
// permission. The agent follows.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "shmctl/settings/sysfs_tree.h"
#include "tools/agent/protocol.h"

namespace gpushare {

// Does what the request "set", "remove" or "attach" asks for. nullopt: the files are not there, or
// not the caller's to write, so the agent is to be asked. Errors as the agent's own: code
// invalid_argument when the request was wrong.
std::optional<Result<>> change_in_sysfs(SysfsTree& tree, const Request& request);

}  // namespace gpushare
