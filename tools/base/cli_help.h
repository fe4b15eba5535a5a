// SPDX-License-Identifier: Apache-2.0
// The text of --help, from a program's spec. Pure; at most 80 columns wide; meant to be read aloud:
// usage, what it does, the options, examples.
#pragma once

#include <string>

#include "tools/base/command_line.h"

namespace gpushare {

std::string program_help(const ProgramSpec& program);
std::string command_help(const ProgramSpec& program, const CommandSpec& command);

// Breaks `text` at spaces so that no line is longer than `width`; keeps the newlines it has.
std::string wrap(std::string_view text, size_t width, size_t indent);

}  // namespace gpushare
