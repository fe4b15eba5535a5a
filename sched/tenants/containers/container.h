// SPDX-License-Identifier: Apache-2.0
// What an engine (Docker, podman, containerd, CRI-O) says of a container, for rules.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gpushare {

struct Container {
  std::vector<std::string> names;                          // the engine's, and Kubernetes'
  std::map<std::string, std::string, std::less<>> labels;  // and annotations

  bool operator==(const Container&) const = default;
};
// Shared by its processes, and never changed.
using ContainerPtr = std::shared_ptr<const Container>;

}  // namespace gpushare
