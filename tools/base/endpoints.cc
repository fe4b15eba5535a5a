// SPDX-License-Identifier: Apache-2.0
#include "tools/base/endpoints.h"

#include <cstdlib>

#include "kmod/uapi/gpushare.h"
#include "shmctl/plane/region.h"

namespace gpushare {
namespace {

std::string choose(const Invocation& invocation, const char* option, const char* variable,
                   const char* fallback) {
  if (auto value = invocation.value(option)) return *value;
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : fallback;
}

std::string sysfs_of(const Invocation& invocation) {
  if (const char* value = std::getenv("GPUSHARE_SYSFS"); value != nullptr && *value != '\0')
    return value;
  return choose(invocation, "socket", "GPUSHARE_SOCKET", "").empty() ? GPUSHARE_SYSFS_PATH : "";
}

}  // namespace

Endpoints endpoints_of(const Invocation& invocation) {
  return {choose(invocation, "socket", "GPUSHARE_SOCKET", "/run/gpushare/agent.sock"),
          choose(invocation, "region", "GPUSHARE_REGION", kDefaultRegionName),
          sysfs_of(invocation)};
}

}  // namespace gpushare
