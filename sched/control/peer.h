// SPDX-License-Identifier: Apache-2.0
// Peer: the process at the other end of the control socket, and what it may do. The kernel says who
// it is (SO_PEERCRED, SO_PEERGROUPS), never the process itself. Called on the agent's thread.
#pragma once

#include <sys/types.h>

#include <optional>

namespace gpushare {

// The members of this group may ask for everything.
inline constexpr const char* kAdminGroup = "gpushare";

struct Peer {
  pid_t pid = 0;          // 0: not known
  uid_t uid = 0;          // -1: not known
  bool is_admin = false;  // root, the agent's own user, or a member of kAdminGroup
};

// nullopt: there is no such group. Asks the name service, which may take long: any thread may call.
std::optional<gid_t> admin_group();

// `socket`: a connected Unix socket; `admins`: admin_group(). A peer about which the kernel says
// nothing is no admin. Never blocks.
Peer identify_peer(int socket, const std::optional<gid_t>& admins);

}  // namespace gpushare
