// SPDX-License-Identifier: Apache-2.0
// Checks one by one what gpushare needs of the machine. It reads files below a root and what the
// caller asked the agent, so that tests can hand it made-up trees and answers. It prints nothing.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/agent/protocol.h"
#include "tools/agent/status_source.h"

namespace gpushare {

struct DoctorInput {
  std::filesystem::path root = "/";  // /proc, /sys, /dev, /run, /etc and /usr are below it
  uid_t uid = 0;
  std::string socket;     // path of the control socket, below root
  Result<Hello> agent;    // what it said, or why it could not be asked
  Result<Status> status;  // of the control plane or the socket
  Result<> region;        // whether the region could be mapped read-only
};
// Returns whether this user may not speak to the agent, of which nothing is known then.
bool may_not_ask(const DoctorInput& input);
// Returns whether a live agent drives a simulated GPU.
bool is_simulated(const DoctorInput& input);

// The findings stand in the order in which they should be fixed. Each that is not ok has a fix.
std::vector<Finding> check_machine(const DoctorInput& input);

}  // namespace gpushare
