// SPDX-License-Identifier: Apache-2.0
// Where the agent is found: the option, else the environment, else the default.
#pragma once

#include <string>

#include "tools/base/cli_args.h"

namespace gpushare {

struct Endpoints {
  std::string socket;  // path of the control socket
  std::string region;  // POSIX shared memory name of the control plane
  // The kernel module's files: GPUSHARE_SYSFS, else where it puts them. Empty when a socket was
  // named: then it is that agent who is asked.
  std::string sysfs;
};

Endpoints endpoints_of(const Invocation& invocation);

}  // namespace gpushare
