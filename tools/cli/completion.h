// SPDX-License-Identifier: Apache-2.0
// Completion scripts, generated from the declared command line, so that they know every command and
// option. Pure.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/program/command_line.h"

namespace gpushare {

// `shell` is bash, zsh or fish. Requires: a program with commands, whose `tenants` and `status`
// print the tables from which the script reads names and process ids.
std::string completion_script(const Command& program, std::string_view shell);

}  // namespace gpushare
