// SPDX-License-Identifier: Apache-2.0
// A cgroup of one's own, which holds a program and all that it starts, however it starts it.
#pragma once

#include <span>
#include <string>

#include "shmctl/base/error.h"

namespace gpushare {

// Puts this process into a new cgroup of version 2. Where systemd runs the machine, the program
// `again` replaces this process inside a scope that systemd makes, and the function returns only on
// failure; elsewhere it makes the cgroup itself, which takes root. The error says what is missing.
Result<> enter_scope(std::span<const std::string> again);

}  // namespace gpushare
