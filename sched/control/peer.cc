// SPDX-License-Identifier: Apache-2.0
#include "sched/control/peer.h"

#include <grp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace gpushare {
namespace {

bool is_in_group(int socket, gid_t primary, gid_t group) {
  if (primary == group) return true;
  std::vector<gid_t> groups(64);
  auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) != 0) {
    if (errno != ERANGE) return false;
    groups.resize(bytes / sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) != 0) return false;
  }
  groups.resize(bytes / sizeof(gid_t));
  return std::ranges::find(groups, group) != groups.end();
}

}  // namespace

std::optional<gid_t> admin_group() {
  const ::group* entry = ::getgrnam(kAdminGroup);
  if (entry == nullptr) return std::nullopt;
  return entry->gr_gid;
}

Peer identify_peer(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  Peer peer{.pid = 0, .uid = static_cast<uid_t>(-1), .is_admin = false};
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.is_admin = peer.uid == 0 || peer.uid == ::geteuid();
  if (!peer.is_admin) {
    const std::optional<gid_t> group = admin_group();
    peer.is_admin = group && is_in_group(socket, credentials.gid, *group);
  }
  return peer;
}

}  // namespace gpushare
