// SPDX-License-Identifier: Apache-2.0
// The kernel module in all its states: loaded or not and why not, what it does with the driver, who
// uses it. Without it gpushare works, so nothing here is a failure. Looks at files only.
#pragma once

#include <string>

#include "tools/doctor/checks.h"
#include "tools/doctor/machine_files.h"

namespace gpushare {

Finding check_module(const MachineFiles& files, const DoctorInput& input);

// What it says of the driver: "hooked nvidia:FUNCTION", "waiting for driver", "drained", "observing
// only: REASON (ERRNO)". Empty: it is not loaded.
std::string module_state(const MachineFiles& files);

}  // namespace gpushare
