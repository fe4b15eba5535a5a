// SPDX-License-Identifier: Apache-2.0
// Where the kubelet puts a pod: the path of its cgroup, by which a pod's processes are known
// whatever they say of themselves. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/kubernetes/pod.h"

namespace gpushare {

enum class CgroupDriver { kEither, kCgroupfs, kSystemd };
std::optional<CgroupDriver> parse_cgroup_driver(std::string_view word);  // "auto", ...

// The paths below the root of the cgroups that the pod may have: one, or with kEither two.
// `root`: the kubelet's --cgroup-root, "/" if it has none.
//   cgroupfs  /kubepods/burstable/podUID
//   systemd   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice
// Empty for a UID that is no UID.
std::vector<std::string> pod_cgroups(const Pod& pod, CgroupDriver driver, std::string_view root);

}  // namespace gpushare
