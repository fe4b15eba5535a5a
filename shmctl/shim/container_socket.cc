// SPDX-License-Identifier: Apache-2.0
#include "shmctl/shim/container_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace gpushare {

std::string container_folder(const std::string& shim_socket) {
  return std::filesystem::path(shim_socket).parent_path() / kContainerFolder;
}

Result<> share_with_containers(const std::string& shim_socket) {
  const std::filesystem::path folder = container_folder(shim_socket);
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
    return errno_error("make the folder for containers", folder);
  const std::string name = folder / std::filesystem::path(shim_socket).filename();
  const std::string draft = name + ".new";
  ::unlink(draft.c_str());
  if (::link(shim_socket.c_str(), draft.c_str()) != 0 || ::rename(draft.c_str(), name.c_str()) != 0)
    return errno_error("name the shim's socket for containers", name);
  // rename() of two names of one socket leaves both.
  ::unlink(draft.c_str());
  return {};
}

}  // namespace gpushare
