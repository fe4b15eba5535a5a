// SPDX-License-Identifier: Apache-2.0
// Finds the file in which an engine of this machine has noted a container. The container has no say
// in it: its id is in the path of its cgroup, which root made, and the file and its folder are
// root's, and nobody else's to write.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "sched/tenants/containers/container.h"
#include "shmctl/base/cgroup.h"

namespace gpushare {

// Other than the machine's own for tests.
struct ContainerPlaces {
  std::string root{};     // before /var/lib and /run
  std::string cgroups{};  // where cgroups are; empty: where they are mounted
  uid_t owner = 0;        // whose files are believed
};

// nullptr: no such file, or none that can be believed; nullopt: it cannot be read now, for want of
// a descriptor or memory. Blocks for as long as the disk does; any thread may call. Reads at most
// kMostContainerBytes of a file, and nothing of a larger one.
std::optional<ContainerPtr> read_container(const ContainerPlaces& places,
                                           const ContainerGroup& group);
inline constexpr std::size_t kMostContainerBytes = 2 << 20;

}  // namespace gpushare
