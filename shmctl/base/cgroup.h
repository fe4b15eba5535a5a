// SPDX-License-Identifier: Apache-2.0
// Where cgroups of version 2 are, what the ones of `gpushare run --scope` are called, and which one
// is a container's. Any thread may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gpushare {

// Of the folder that `gpushare run --scope` makes where there is no systemd.
inline constexpr std::string_view kScopePrefix = "/gpushare-run-";

// The folder of the root of the version 2 hierarchy; nullopt where none is mounted whole.
std::optional<std::string> cgroup2_root();
// The same from the text of /proc/self/mountinfo.
std::optional<std::string> cgroup2_root(std::string_view mountinfo);

// The path of a process below that root, from the text of its /proc/PID/cgroup, whose lines are
// "ID:CONTROLLERS:PATH". The id 0 is version 2. Without it, systemd's own hierarchy names the same
// units. Empty: neither is there.
std::string cgroup_path(std::string_view text);

// The id in the name of a container's cgroup, 64 hexadecimal digits: "docker-ID.scope",
// "cri-containerd-ID.scope", "crio-ID", "libpod-ID.scope", "ID". Pure.
std::optional<std::string> container_id(std::string_view name);

struct ContainerGroup {
  std::string id;     // 64 hexadecimal digits
  std::string above;  // the path of the group in which the container's is
  std::string name;   // of the container's own
};
// The outermost container's on a path: what is below it may have been made in it, and called
// anything. A pod of podman's is none. Pure; defined for any text.
std::optional<ContainerGroup> container_group(std::string_view cgroup_path);

}  // namespace gpushare
