// SPDX-License-Identifier: Apache-2.0
// Opens stream sockets that have a name in the file system. Any thread may call. `step` says in an
// error what the caller attempted.
#pragma once

#include <sys/types.h>

#include <string>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

// Connects, and blocks until there is room in the listener's queue. Errors: filename_too_long, and
// those of connect().
Result<Fd> connect_to_socket(const std::string& path, const char* step);

// Listens under `path`; accept() on the result does not block. A name that no process listens on
// any more is taken over, also from one that has died and of which a thread is left. `mode` are the
// permission bits, which say who may connect. Errors: filename_too_long, address_in_use when a
// process listens there, file_exists when the name is not that of a socket, and those of bind() and
// chmod().
Result<Fd> listen_on_socket(const std::string& path, mode_t mode, const char* step);

}  // namespace gpushare
