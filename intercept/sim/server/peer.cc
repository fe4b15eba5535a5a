// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/server/peer.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <string>

#include "shmctl/base/proc_stat.h"

namespace gpushare::sim {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The last number of the line "NSpid:  4711  12" is the pid in the innermost namespace.
pid_t innermost_pid(const std::string& status, pid_t otherwise) {
  const size_t at = status.find("\nNSpid:");
  if (at == std::string::npos) return otherwise;
  std::istringstream line(status.substr(at + 7, status.find('\n', at + 1) - at - 7));
  pid_t pid = otherwise;
  while (line >> pid) continue;
  return pid == 0 ? otherwise : pid;
}

uint64_t cgroup_id(const std::string& cgroups) {
  const size_t at = cgroups.rfind("0::", 0) == 0 ? 0 : cgroups.find("\n0::");
  if (at == std::string::npos) return 0;
  const size_t begin = cgroups.find("::", at) + 2;
  const std::string path = cgroups.substr(begin, cgroups.find('\n', begin) - begin);
  struct stat info{};
  return ::stat(("/sys/fs/cgroup" + path).c_str(), &info) == 0 ? info.st_ino : 0;
}

}  // namespace

Result<Peer> identify_peer(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return errno_error("identify peer");
  Peer peer;
  peer.process.pid = credentials.pid;
  const std::string proc = "/proc/" + std::to_string(credentials.pid);
  const auto stat = read_proc_stat(credentials.pid);
  if (!stat) return make_error(std::errc::no_such_process, "identify peer", proc);
  peer.process.start_ticks = stat->start_ticks;
  peer.about.command = stat->command;
  peer.about.uid = credentials.uid;
  peer.about.ns_pid = innermost_pid(read_file(proc + "/status"), credentials.pid);
  peer.about.cgroup_id = cgroup_id(read_file(proc + "/cgroup"));
  return peer;
}

}  // namespace gpushare::sim
