// SPDX-License-Identifier: Apache-2.0
// The shim's socket for programs in containers: a second name of it (a hard link), in a folder in
// which nothing else is. That folder is what is mounted into containers, and never the one with the
// agent's control socket: root in a container is root for the agent, which sees the user's number
// only.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare {

inline constexpr std::string_view kContainerFolder = "containers";

// The folder for containers beside a socket: "/run/gpushare/containers" of
// "/run/gpushare/shim.sock".
std::string container_folder(const std::string& shim_socket);

// Gives the socket, which is there, its name in that folder (0755, made if it is missing). A name
// of a socket that has gone is replaced in one step, so a container finds the new one when the
// agent has been started again. Errors: those of mkdir(2), link(2) and rename(2). Any thread.
Result<> share_with_containers(const std::string& shim_socket);

}  // namespace gpushare
