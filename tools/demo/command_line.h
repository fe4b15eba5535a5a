// SPDX-License-Identifier: Apache-2.0
// The command line of gpushare-demo.
#pragma once

#include "tools/base/command_line.h"

namespace gpushare {

const ProgramSpec& demo_spec();

}  // namespace gpushare
