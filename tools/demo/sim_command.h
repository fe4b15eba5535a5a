// SPDX-License-Identifier: Apache-2.0
// gpushare sim: a session with simulated GPUs and an agent of its own.
#pragma once

#include "shmctl/program/command_line.h"

namespace gpushare {

Command sim_command();

}  // namespace gpushare
