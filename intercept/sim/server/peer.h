// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a Unix socket, from the kernel and from /proc.
#pragma once

#include "intercept/event.h"
#include "shmctl/base/error.h"

namespace gpushare::sim {

struct Peer {
  ProcessId process;
  ProcessOpened about;
};

// Error no_such_process when it ended meanwhile.
Result<Peer> identify_peer(int socket);

}  // namespace gpushare::sim
