// SPDX-License-Identifier: Apache-2.0
// Where the agent is found: the option, else the environment, else the default.
#pragma once

#include <string>

#include "tools/cli_args.h"

namespace gpushare {

struct Endpoints {
  std::string socket;  // path of the control socket
  std::string region;  // POSIX shared memory name of the control plane
};

Endpoints endpoints_of(const Invocation& invocation);

}  // namespace gpushare
