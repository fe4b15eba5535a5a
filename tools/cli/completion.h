// SPDX-License-Identifier: Apache-2.0
// Completion scripts, generated from the command tree, so that they know every command and option.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tools/base/command_line.h"

namespace gpushare {

// `shell`: bash, zsh or fish; nullopt for another. Requires a program with commands, whose
// `tenants` and `status` print tables (where names and pids to offer come from).
std::optional<std::string> completion_script(const ProgramSpec& program, std::string_view shell);

}  // namespace gpushare
