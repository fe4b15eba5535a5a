// SPDX-License-Identifier: Apache-2.0
// Checks the kernel module in all its states: whether it is loaded, why it is not, what it does
// with the driver, and which agent uses it. gpushare works without it, so nothing here is a
// failure. It only looks at files.
#pragma once

#include <string>

#include "tools/doctor/checks.h"
#include "tools/doctor/machine_files.h"

namespace gpushare {

Finding check_module(const MachineFiles& files, const DoctorInput& input);

// Returns what the module says of the driver: "hooked nvidia:FUNCTION", "waiting for driver",
// "drained" or "observing only: REASON (ERRNO)". Empty if it is not loaded.
std::string module_state(const MachineFiles& files);

}  // namespace gpushare
