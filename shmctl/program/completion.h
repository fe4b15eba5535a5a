// SPDX-License-Identifier: Apache-2.0
// Completion scripts, generated from the declared command line, so that they know every command and
// option. Pure.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/program/command_line.h"

namespace gpushare {

// `shell` is bash, zsh, and otherwise fish. Names of tenants and process ids are read from what
// `gpushare tenants` and `gpushare status` print.
std::string completion_script(const Command& program, std::string_view shell);

}  // namespace gpushare
