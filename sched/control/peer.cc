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

constexpr std::size_t kLargestEntry = 16 << 20;  // bytes, of a group with all its members

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
  std::vector<char> buffer(1024);
  ::group entry{};
  ::group* found = nullptr;
  int error = 0;  // a group with many members takes a large buffer
  while ((error = ::getgrnam_r(kAdminGroup, &entry, buffer.data(), buffer.size(), &found)) ==
             ERANGE &&
         buffer.size() < kLargestEntry)
    buffer.resize(2 * buffer.size());
  if (error != 0 || found == nullptr) return std::nullopt;
  return found->gr_gid;
}

Peer identify_peer(int socket, const std::optional<gid_t>& admins) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  Peer peer{.pid = 0, .uid = static_cast<uid_t>(-1), .is_admin = false};
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.is_admin = peer.uid == 0 || peer.uid == ::geteuid();
  if (!peer.is_admin) peer.is_admin = admins && is_in_group(socket, credentials.gid, *admins);
  return peer;
}

}  // namespace gpushare
