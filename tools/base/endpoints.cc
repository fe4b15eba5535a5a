// SPDX-License-Identifier: Apache-2.0
#include "tools/base/endpoints.h"

#include <cstdlib>

#include "kmod/uapi/gpushare.h"
#include "shmctl/plane/region.h"

namespace gpushare {

std::vector<Option> endpoint_options() {
  return {{.name = "socket",
           .value = "PATH",
           .help = "The agent's control socket",
           .otherwise = "/run/gpushare/agent.sock",
           .variable = "GPUSHARE_SOCKET"},
          {.name = "region",
           .value = "NAME",
           .help = "The control plane's shared memory",
           .otherwise = kDefaultRegionName,
           .variable = "GPUSHARE_REGION"}};
}

Endpoints endpoints_of(const Invocation& invocation) {
  const char* const named = std::getenv("GPUSHARE_SYSFS");
  const std::string usual = invocation.has("socket") ? "" : GPUSHARE_SYSFS_PATH;
  return {invocation.text("socket"), invocation.text("region"),
          named != nullptr && *named != '\0' ? named : usual};
}

}  // namespace gpushare
