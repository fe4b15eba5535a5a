// SPDX-License-Identifier: Apache-2.0
// The text of --help, from a program's Command: at most 80 columns wide, and meant to be read
// aloud: the usage, what it does, the options, examples. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shmctl/program/command_line.h"

namespace gpushare {

// The help of `command`, which is `program` itself or one of its commands.
std::string help_text(const Command& program, const Command& command);

// An option's sentence as the help shows it: "How long to record, 0.1 to 3600 (5)."
std::string option_text(const Option& option);

std::string range_text(const Range& range);  // "0.1 to 3600"

// Lines of a list: the headings in one column, the texts wrapped in the next.
struct HelpEntry {
  std::string heading;
  std::string text;
};
std::string entries_text(const std::vector<HelpEntry>& list);

// Breaks `text` at spaces so that no line is longer than `width`; keeps the newlines it has.
std::string wrap(std::string_view text, size_t width, size_t indent);

}  // namespace gpushare
