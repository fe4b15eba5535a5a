// SPDX-License-Identifier: Apache-2.0
// From argv to what was asked. The only file that knows CLI11; it builds the parser from the
// program's spec and never prints or exits: main() does.
#pragma once

#include <expected>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/base/command_line.h"

namespace gpushare {

enum ExitCode : int { kExitOk = 0, kExitFailure = 1, kExitUsage = 2 };

// One parsed command line. Names are those of the spec.
struct Invocation {
  const CommandSpec* command = nullptr;                     // nullptr: the program has no commands
  std::map<std::string, std::string, std::less<>> options;  // flags have an empty value
  std::vector<std::string> arguments;

  bool has(std::string_view option) const { return options.contains(option); }
  std::optional<std::string> value(std::string_view option) const;
};

// What to print instead of running: help (kExitOk, to stdout) or what was wrong (kExitUsage).
struct Stop {
  ExitCode code = kExitOk;
  std::string text;
};

// `program` must outlive the result.
std::expected<Invocation, Stop> parse_args(const ProgramSpec& program, int argc,
                                           const char* const* argv);

// "gpushare: TEXT" and where to read more.
Stop usage_error(const ProgramSpec& program, const CommandSpec* command, std::string_view text);

}  // namespace gpushare
