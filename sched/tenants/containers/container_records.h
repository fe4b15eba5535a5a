// SPDX-License-Identifier: Apache-2.0
// The files in which container engines note what a container is, as far as rules ask for it. Pure;
// defined for any text: what is not of the form is left out. Of labels that are too many, or too
// long, some are left out, too: whoever starts a container may write them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "sched/tenants/containers/container.h"

namespace gpushare {

inline constexpr std::size_t kMostLabels = 128, kLongestLabel = 512;  // bytes, key and value each

// Docker's config.v2.json: Name is "/web", and the labels are in Config.
Container docker_container(std::string_view text);

// config.json of the Open Container Initiative, with which a runtime starts a container: all that
// is in it are annotations. containerd, CRI-O and nerdctl write the names there.
Container oci_container(std::string_view text);

// containers.json of the storage of podman and CRI-O, which has the names of all containers: those
// of the one with this id.
std::vector<std::string> stored_names(std::string_view text, std::string_view id);

}  // namespace gpushare
