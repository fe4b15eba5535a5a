// SPDX-License-Identifier: Apache-2.0
// gpushare cdi: tenants as devices of containers.
#pragma once

#include "shmctl/program/command_line.h"

namespace gpushare {

Command cdi_command();

}  // namespace gpushare
