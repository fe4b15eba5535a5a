// SPDX-License-Identifier: Apache-2.0
// How gpushare's commands report: data goes to standard output and everything else to standard
// error, and an error means an exit code.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "shmctl/program/command_line.h"
#include "tools/base/table.h"

namespace gpushare {

// Prints "gpushare: MESSAGE" to standard error. Returns kExitUsage when the request was wrong,
// otherwise kExitFailure.
ExitCode report(const Error& error);

struct Screen {
  // Of a terminal, or as COLUMNS says; 80 when the output goes elsewhere.
  size_t width = 80;
  bool has_colours = false;  // a terminal, and neither NO_COLOR nor TERM=dumb
};
Screen stdout_screen();
// The same for tables: they are as wide as they must be if `is_wide`, and where the output goes
// elsewhere and COLUMNS is not set.
Screen stdout_table_screen(bool is_wide);

// Readable once SIGINT or SIGTERM asks this program to end. They stay blocked, so that a second one
// does not kill it while it writes a file.
Fd interrupt_fd();

enum class Tone { kPlain, kGood, kWarning, kBad, kDim };
std::string in_tone(std::string_view text, Tone tone, const Screen& screen);

// Adds its lines, as wide as the screen and with a dim heading.
void add_table(std::vector<std::string>& lines, const Table& table, const Screen& screen);

}  // namespace gpushare
