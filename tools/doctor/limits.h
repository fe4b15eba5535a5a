// SPDX-License-Identifier: Apache-2.0
// Which limits have an effect on this machine now, and why the others have none: for doctor, and
// for whoever sets one that does not bind. It reads files below a root and a status. It prints
// nothing.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/doctor/checks.h"

namespace gpushare {

// Says whether one of a tenant's settings has an effect on this machine now.
struct LimitFinding {
  std::string limit;  // the setting's name
  bool is_binding = false;
  std::string where;                 // what enforces it, or what would
  std::string why;                   // why it does not bind, or how closely it does
  std::vector<std::string> used_by;  // tenants that set it
};
// Uses the members `root` and `status` only.
std::vector<LimitFinding> check_limits(const DoctorInput& input);

// Returns whether a live agent shares one of its GPUs spatially.
bool has_spatial_gpu(const DoctorInput& input);

// A line for each of `settings`, keys with values, that asks for something and has no effect:
// "memory_max=100M does not bind: gpushare.ko is not loaded". `has_shim`: the programs that they
// are for have the shim, or may have it.
// `tenant`: whose they are; empty: one that has no other above it.
std::vector<std::string> without_effect(
    const std::vector<std::pair<std::string, std::string>>& settings,
    const std::vector<LimitFinding>& limits, bool has_shim, std::string_view tenant = {});

}  // namespace gpushare
