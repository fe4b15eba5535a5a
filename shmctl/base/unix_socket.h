// SPDX-License-Identifier: Apache-2.0
// Stream sockets with a name in the file system. Any thread; `step` names what it is wanted for.
#pragma once

#include <sys/types.h>

#include <string>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

// Waits for the other side to accept. Errors: filename_too_long, connect()'s.
Result<Fd> connect_to_socket(const std::string& path, const char* step);

// Does not block in accept(). Takes over a socket that nobody listens on any more. `mode`: who may
// connect. Errors: filename_too_long, address_in_use when somebody listens, bind()'s and chmod()'s.
Result<Fd> listen_on_socket(const std::string& path, mode_t mode, const char* step);

}  // namespace gpushare
