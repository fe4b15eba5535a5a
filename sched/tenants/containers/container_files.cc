// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/containers/container_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <expected>
#include <filesystem>
#include <vector>

#include "sched/tenants/containers/container_records.h"
#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

enum class Unread { kAbsent, kNotNow };
using Reading = std::expected<std::string, Unread>;

std::unexpected<Unread> unread(int error) {
  const bool is_want = error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR;
  return std::unexpected(is_want ? Unread::kNotNow : Unread::kAbsent);
}

bool is_owners_alone(const struct stat& of, uid_t owner) {
  return of.st_uid == owner && (of.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// No link, pipe or device is followed, and no file that another could have put there.
Reading read_owned(const std::string& folder, const char* name, uid_t owner) {
  const Fd in(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!in.is_open()) return unread(errno);
  struct stat of{};
  if (::fstat(in.get(), &of) != 0 || !is_owners_alone(of, owner)) return unread(EACCES);
  const Fd file(::openat(in.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) return unread(errno);
  if (::fstat(file.get(), &of) != 0 || !S_ISREG(of.st_mode) || !is_owners_alone(of, owner))
    return unread(EACCES);
  std::string text;
  std::vector<char> chunk(65'536);
  while (text.size() <= kMostContainerBytes) {
    const ssize_t n = ::read(file.get(), chunk.data(), chunk.size());
    if (n < 0) return unread(errno);
    if (n == 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(n));
  }
  return unread(EFBIG);
}

// Who may write into the group above the container's may call a group of its own anything. systemd
// and the kernel let users do so below groups that are theirs.
bool has_root_made_it(const ContainerPlaces& places, const ContainerGroup& group) {
  std::string root = places.cgroups;
  if (root.empty()) root = cgroup2_root().value_or("/sys/fs/cgroup/systemd");
  struct stat of{};
  return ::stat((root + group.above).c_str(), &of) == 0 && is_owners_alone(of, places.owner);
}

// The folders that may have its config.json: podman and CRI-O keep it by the driver of their
// storage, containerd by namespace.
std::vector<std::string> bundles_of(const std::string& root, const std::string& id) {
  std::vector<std::string> bundles;
  for (const char* storage : {"/var/lib/containers/storage/", "/run/containers/storage/"})
    for (const char* driver : {"overlay", "vfs", "btrfs", "zfs"})
      bundles.push_back(root + storage + driver + "-containers/" + id + "/userdata");
  constexpr std::size_t kMostNamespaces = 64;
  for (const char* state : {"/run/containerd", "/run/k3s/containerd"}) {
    std::error_code code;
    std::size_t seen = 0;
    for (std::filesystem::directory_iterator
             at(root + state + "/io.containerd.runtime.v2.task", code),
         end;
         !code && at != end && seen < kMostNamespaces; at.increment(code), ++seen)
      bundles.push_back(at->path() / id);
  }
  return bundles;
}

// Of the lists in the folder of all containers, two above the bundle's; none where it is no
// storage. Those that end with their program are in a list of their own. False: they cannot be read
// now.
bool add_names_beside(const std::string& bundle, const std::string& id, uid_t owner,
                      std::vector<std::string>& names) {
  const auto folder = std::filesystem::path(bundle).parent_path().parent_path();
  for (const char* list : {"containers.json", "volatile-containers.json"}) {
    const Reading text = read_owned(folder, list, owner);
    if (!text && text.error() == Unread::kNotNow) return false;
    if (!text) continue;
    for (std::string& name : stored_names(*text, id)) names.push_back(std::move(name));
  }
  return true;
}

}  // namespace

std::optional<ContainerPtr> read_container(const ContainerPlaces& places,
                                           const ContainerGroup& group) {
  if (!has_root_made_it(places, group)) return ContainerPtr();
  const Reading docker = read_owned(places.root + "/var/lib/docker/containers/" + group.id,
                                    "config.v2.json", places.owner);
  if (docker) return std::make_shared<Container>(docker_container(*docker));
  if (docker.error() == Unread::kNotNow) return std::nullopt;
  for (const std::string& bundle : bundles_of(places.root, group.id)) {
    const Reading text = read_owned(bundle, "config.json", places.owner);
    if (!text && text.error() == Unread::kNotNow) return std::nullopt;
    if (!text) continue;
    Container container = oci_container(*text);
    if (!add_names_beside(bundle, group.id, places.owner, container.names)) return std::nullopt;
    return std::make_shared<Container>(std::move(container));
  }
  return ContainerPtr();
}

}  // namespace gpushare
