// SPDX-License-Identifier: Apache-2.0
// gpushare's command line as data.
#pragma once

#include "tools/base/command_line.h"

namespace gpushare {

const ProgramSpec& gpushare_spec();

// The options of `run` that are settings of a tenant, by the setting's key ("memory_max").
std::string setting_option(std::string_view key);  // "memory-max"
const std::vector<std::string_view>& setting_keys_of_run();

}  // namespace gpushare
