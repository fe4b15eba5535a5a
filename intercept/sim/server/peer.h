// SPDX-License-Identifier: Apache-2.0
// Identifies the process at the other end of a Unix socket, by the kernel and /proc. Any thread.
#pragma once

#include "intercept/event.h"
#include "shmctl/base/error.h"

namespace gpushare::sim {

struct Peer {
  ProcessId process;
  ProcessOpened about;
};

// Error no_such_process when it has ended.
Result<Peer> identify_peer(int socket);

}  // namespace gpushare::sim
