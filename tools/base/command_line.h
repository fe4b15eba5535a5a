// SPDX-License-Identifier: Apache-2.0
// What a program's command line looks like, as plain data, stated once: the parser (cli_args), the
// help (cli_help), the shell completions (completion) and the test of the man pages all read it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gpushare {

// What a shell may offer for a value.
enum class Offers { kNothing, kWords, kFiles, kTenants, kPids, kTargets, kCommands };

struct OptionSpec {
  std::string_view name{};   // long name without the dashes
  char letter = 0;           // short name, 0: none
  std::string_view value{};  // what the value is called in the help; empty: a flag
  std::string_view help{};   // one sentence, allowed values and default included
  Offers offers = Offers::kNothing;
  std::string_view words{};  // with kWords: separated by spaces
};

struct CommandSpec {
  std::string_view name{};
  std::string_view summary{};    // one line
  std::string_view arguments{};  // as written in the usage line; empty: takes none
  size_t min_arguments = 0;
  size_t max_arguments = 0;
  Offers offers = Offers::kNothing;  // for the first argument
  std::string_view words{};          // with kWords
  std::string_view details{};        // paragraphs below the usage line
  std::vector<OptionSpec> options{};
  std::vector<std::string_view> examples{};  // command lines, each may end in "  # why"
  // The first argument ends our options: what follows belongs to the program that is started.
  bool starts_program = false;
};

struct ProgramSpec {
  std::string_view name{};
  std::string_view summary{};
  std::vector<OptionSpec> options{};    // accepted before and after the command
  std::vector<CommandSpec> commands{};  // empty: the program has no commands
  std::string_view details{};
  std::vector<std::string_view> examples{};
};

inline constexpr size_t kManyArguments = 100'000;

const CommandSpec* find_command(const ProgramSpec& program, std::string_view name);

// "-o, --output FILE"
std::string option_heading(const OptionSpec& option);

// Of `candidates` the one that a person most likely meant by `typed`; empty if none is close.
std::string_view closest(std::string_view typed, const std::vector<std::string_view>& candidates);

}  // namespace gpushare
