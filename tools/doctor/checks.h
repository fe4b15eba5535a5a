// SPDX-License-Identifier: Apache-2.0
// Checks one by one what gpushare needs of the machine, and which limits bind. It reads files below
// a root and what the caller asked the agent, so that tests can hand it made-up trees and answers.
// It prints nothing.
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
// Returns whether a live agent drives a simulated GPU.
bool is_simulated(const DoctorInput& input);

// The findings stand in the order in which they should be fixed. Each that is not ok has a fix.
std::vector<Finding> check_machine(const DoctorInput& input);

// Says whether one of a tenant's settings has an effect on this machine now.
struct LimitFinding {
  std::string limit;  // the setting's name
  bool is_binding = false;
  std::string where;                 // what enforces it, or what would
  std::string why;                   // why it does not bind, or how closely it does
  std::vector<std::string> used_by;  // tenants that set it
};
std::vector<LimitFinding> check_limits(const DoctorInput& input);

}  // namespace gpushare
