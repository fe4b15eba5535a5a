// SPDX-License-Identifier: Apache-2.0
// Which processes hold copies of a socket: a child has those of its parent. Reads /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <vector>

namespace gpushare::sim {

std::vector<pid_t> all_pids();
// The inodes of the sockets that it has open; those that may not be looked at are left out.
std::set<uint64_t> sockets_of(pid_t pid);

}  // namespace gpushare::sim
