// SPDX-License-Identifier: Apache-2.0
// Where a tool finds the agent: from its options, otherwise from the environment, otherwise where
// the agent usually is. And which of its GPUs is meant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/program/command_line.h"

namespace gpushare {

struct Endpoints {
  // At least one of these is not empty. The other one is when only one was named, in the options
  // and the environment together: then the named one is all that is known of that agent.
  std::string socket;  // path of the control socket
  std::string region;  // POSIX shared memory name of the control plane
  // The kernel module's files: $GPUSHARE_SYSFS, otherwise where it puts them. Empty when an
  // agent was named, because that one is then to be asked.
  std::string sysfs;
};

std::vector<Option> endpoint_options();   // --socket and --region
Command with_endpoints(Command program);  // the same after its own options
// Requires: the program has endpoint_options().
Endpoints endpoints_of(const Invocation& invocation);

// The value of --gpu, a number below kMaxGpus; nullopt: it was not given. The error's detail says
// what is allowed. Requires: the program has that option.
Result<std::optional<uint32_t>> gpu_option(const Invocation& invocation);

}  // namespace gpushare
