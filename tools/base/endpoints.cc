// SPDX-License-Identifier: Apache-2.0
#include "tools/base/endpoints.h"

#include <cstdlib>

#include "kmod/uapi/gpushare.h"
#include "shmctl/plane/region.h"

namespace gpushare {

std::vector<Option> endpoint_options() {
  return {{"socket", 0, "PATH", "The agent's control socket", "/run/gpushare/agent.sock",
           "GPUSHARE_SOCKET"},
          {"region", 0, "PATH", "The control plane; /NAME stands for /dev/shm/NAME",
           kDefaultRegionName, "GPUSHARE_REGION"}};
}

Endpoints endpoints_of(const Invocation& invocation) {
  const char* const named = std::getenv("GPUSHARE_SYSFS");
  const std::string usual = invocation.has("socket") ? "" : GPUSHARE_SYSFS_PATH;
  return {invocation.text("socket"), invocation.text("region"),
          named != nullptr && *named != '\0' ? named : usual};
}

}  // namespace gpushare
