// SPDX-License-Identifier: Apache-2.0
// The command line of every program of ours: declared once as a Command, from which the parser, the
// help, the shell completions and the tests of the man pages all follow. CLI11 does the parsing, in
// command_line.cc only. Used by main(), before any thread starts.
//
// The conventions that all programs share: the exit codes below; "PROGRAM: what is wrong and what
// is allowed" on standard error; --help and --version (-h, -V); `PROGRAM help COMMAND` where there
// are commands; options stand before or after the command.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/clock.h"

namespace gpushare {

// What a program ends with: it did its work, it failed, or its command line was wrong. The last two
// are the shell's: a program that it was to become could not be started, or is not there.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitCannotRun = 126,
  kExitNotFound = 127
};

// The numbers that an option takes, both ends included. Those of a whole number are below 2^64.
inline constexpr double kNoLimit = 0x1p64;
struct Range {
  double least = 0;
  double most = 0;
  bool is_whole = false;
};

// Written in this order: {"output", 'o', "FILE", "Where to write"}; by name where it needs more,
// and as number_option() where it takes a number.
struct Option {
  std::string name{};  // the long name, without the dashes
  char letter = 0;     // the short name; 0 if there is none
  // What the value is called in the help. Empty for a flag; in brackets if it may be left out.
  // Shells complete files for FILE, DIR and PATH, and tenants for TENANT.
  std::string value{};
  // One sentence without its full stop, to which the range, the default and the variable are added.
  // An option without help is hidden.
  std::string help{};
  std::string otherwise{};       // the default: the help shows it, text() returns it
  std::string variable{};        // of the environment, which counts when the option is not given
  std::optional<Range> range{};  // set for a number
  std::string words{};           // what shells offer, separated by spaces

  std::string heading() const;  // "-o, --output FILE"
};

// An option that takes a number; `otherwise` is its default, empty if it has none.
Option number_option(std::string name, std::string value, std::string help, Range range,
                     std::string otherwise = {});

struct Invocation;

// A program, or one of its commands.
struct Command {
  std::string name{};
  std::string summary{};  // one line
  // As written in the usage line, and how many there must be follows from it: "TENANT
  // KEY=VALUE...", "PID|TENANT", "on|off" (lower case: exactly these words), "REGION [COUNT]".
  // Empty: none.
  std::string arguments{};
  // What shells offer for an argument KEY=VALUE, separated by spaces: "weight= priority=idle".
  std::string argument_words{};
  std::string details{};                // paragraphs for the help
  std::vector<Option> options{};        // those of a program hold for all its commands
  std::vector<std::string> examples{};  // command lines, each may end in "  # why"
  // The first argument ends our options: what follows belongs to the program that is started.
  bool starts_program = false;
  std::function<ExitCode(const Invocation&)> run{};
  std::vector<Command> commands{};  // if there are any, one of them must be named

  // What `arguments` lists when it is a choice of words, such as "on|off"; otherwise empty.
  std::vector<std::string> choices() const;
};

// One parsed command line. Names are long names of options.
struct Invocation {
  const Command* program = nullptr;
  const Command* command = nullptr;  // the program itself when it has no commands
  std::map<std::string, std::string, std::less<>> options{};  // given; flags have an empty value
  std::vector<std::string> arguments{};

  bool has(std::string_view option) const { return options.contains(option); }
  // What was given on the command line or in the environment.
  std::optional<std::string> value(std::string_view option) const;
  // The same, or the default; empty if there is none.
  std::string text(std::string_view option) const;
  // Requires: the option has a range (of whole numbers), and was given or has a default.
  double number(std::string_view option) const;
  uint64_t whole(std::string_view option) const;
  Nanos seconds(std::string_view option) const;  // number(), which is in seconds

  // Prints "PROGRAM: TEXT" and where to read more to standard error. Returns kExitUsage.
  ExitCode wrong(std::string_view text) const;
};

// What to print instead of running: the help or the version (kExitOk, for standard output), or what
// is wrong (kExitUsage, for standard error).
struct Stop {
  ExitCode code = kExitOk;
  std::string text;
};

// Parses a command line; neither prints nor exits. `program` must outlive the result.
std::expected<Invocation, Stop> parse_args(const Command& program, int argc,
                                           const char* const* argv);

// The whole of main(): parses, runs what was asked for and returns the exit code. With
// --print-completion SHELL, which is hidden, it prints a completion script (completion.h). An
// exception from it (out of memory, or a defect of ours) is printed and is a failure.
int run_program(const Command& program, int argc, const char* const* argv);

// Flushes standard output. Returns `code`, or kExitFailure with a message of `program` when
// something could not be written, for example because a disk is full.
ExitCode finish_output(std::string_view program, ExitCode code);

}  // namespace gpushare
