// SPDX-License-Identifier: Apache-2.0
#include "tools/base/cli_args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tools/base/cli_help.h"

namespace gpushare {
namespace {

// Where CLI11 puts what it finds; addresses must stay put while the parser lives.
struct Parser {
  CLI::App app;
  std::map<const CLI::App*, const CommandSpec*> commands;
  std::map<const CLI::App*, std::vector<std::string>> arguments;
};

void add_options(CLI::App& app, const std::vector<OptionSpec>& options) {
  for (const OptionSpec& option : options) {
    std::string names = fmt::format("--{}", option.name);
    if (option.letter != 0) names += fmt::format(",-{}", option.letter);
    if (option.value.empty()) {
      app.add_flag(names)->disable_flag_override();
    } else {
      // Always exactly one value: `--max "30000 100000"` is one, and the next word is another
      // thing.
      app.add_option(names)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

void build(Parser& parser, const ProgramSpec& program) {
  parser.app.name(std::string(program.name));
  parser.app.set_help_flag();
  parser.app.allow_extras();
  add_options(parser.app, program.options);
  parser.app.add_flag("-h,--help");
  for (const CommandSpec& command : program.commands) {
    CLI::App& sub = *parser.app.add_subcommand(std::string(command.name));
    sub.set_help_flag();
    sub.allow_extras();
    sub.fallthrough();
    if (command.starts_program) sub.positionals_at_end();
    add_options(sub, command.options);
    parser.commands[&sub] = &command;
    sub.add_option("arguments", parser.arguments[&sub]);
  }
  parser.app.require_subcommand(0, 1);
}

void collect(const CLI::App& app, const std::vector<OptionSpec>& options, Invocation& into) {
  for (const OptionSpec& option : options) {
    const CLI::Option* parsed = app.get_option(fmt::format("--{}", option.name));
    if (parsed->count() == 0) continue;
    into.options[std::string(option.name)] =
        option.value.empty() ? std::string() : parsed->results().back();
  }
}

std::vector<std::string_view> option_names(const ProgramSpec& program, const CommandSpec* command) {
  std::vector<std::string_view> names{"help"};
  for (const OptionSpec& option : program.options) names.push_back(option.name);
  if (command != nullptr)
    for (const OptionSpec& option : command->options) names.push_back(option.name);
  return names;
}

std::string unknown_word(const ProgramSpec& program, const CommandSpec* command,
                         const std::string& word) {
  if (word.size() > 1 && word[0] == '-') {
    const std::string name = word.substr(word.find_first_not_of('-'), word.find('=') - 2);
    const std::string_view guess = closest(name, option_names(program, command));
    return fmt::format("unknown option {}{}", word,
                       guess.empty() ? "" : fmt::format("; did you mean --{}?", guess));
  }
  if (command != nullptr || program.commands.empty())
    return fmt::format("unexpected argument '{}'", word);
  std::vector<std::string_view> names;
  names.reserve(program.commands.size());
  for (const CommandSpec& candidate : program.commands) names.push_back(candidate.name);
  const std::string_view guess = closest(word, names);
  return fmt::format("unknown command '{}'; {}", word,
                     guess.empty() ? fmt::format("the commands are: {}", fmt::join(names, ", "))
                                   : fmt::format("did you mean '{}'?", guess));
}

std::optional<std::string> wrong_count(const CommandSpec& command, size_t count) {
  if (count < command.min_arguments)
    return fmt::format("{} needs {}", command.name, command.arguments);
  if (count > command.max_arguments)
    return command.max_arguments == 0
               ? fmt::format("{} takes no arguments", command.name)
               : fmt::format("{} takes only {}", command.name, command.arguments);
  return std::nullopt;
}

// CLI11 says "--name: 1 required TEXT missing" or "name was given a disallowed flag override".
std::string wrong_value(std::string_view text) {
  const std::string_view name = text.substr(0, text.find_first_of(": "));
  const bool is_missing = text.substr(name.size()).starts_with(':');
  return fmt::format("option {}{} {}", name.starts_with('-') ? "" : "--", name,
                     is_missing ? "needs a value" : "takes no value");
}

}  // namespace

std::optional<std::string> Invocation::value(std::string_view option) const {
  const auto found = options.find(option);
  if (found == options.end()) return std::nullopt;
  return found->second;
}

Stop usage_error(const ProgramSpec& program, const CommandSpec* command, std::string_view text) {
  return {kExitUsage,
          fmt::format("{}: {}\nTry '{}{}{} --help'.\n", program.name, text, program.name,
                      command != nullptr ? " " : "", command != nullptr ? command->name : "")};
}

std::expected<Invocation, Stop> parse_args(const ProgramSpec& program, int argc,
                                           const char* const* argv) {
  Parser parser;
  build(parser, program);
  Invocation invocation;
  std::string failure;
  try {
    parser.app.parse(argc, argv);
  } catch (const CLI::ArgumentMismatch& error) {
    failure = wrong_value(error.what());
  } catch (const CLI::ParseError& error) {
    failure = error.what();
  }
  const CLI::App* sub = nullptr;
  if (!parser.app.get_subcommands().empty()) {
    sub = parser.app.get_subcommands().front();
    invocation.command = parser.commands.at(sub);
  }
  const CommandSpec* command = invocation.command;
  if (parser.app.count("--help") != 0) {
    return std::unexpected(Stop{
        kExitOk, command != nullptr ? command_help(program, *command) : program_help(program)});
  }
  if (!failure.empty()) return std::unexpected(usage_error(program, command, failure));
  for (const CLI::App* level : {sub, static_cast<const CLI::App*>(&parser.app)}) {
    if (level == nullptr) continue;
    for (const std::string& word : level->remaining()) {
      if (word == "--") continue;
      return std::unexpected(usage_error(program, command, unknown_word(program, command, word)));
    }
  }
  if (!program.commands.empty() && command == nullptr)
    return std::unexpected(Stop{kExitUsage, program_help(program)});

  collect(parser.app, program.options, invocation);
  if (command != nullptr) {
    collect(*sub, command->options, invocation);
    invocation.arguments = parser.arguments.at(sub);
    if (const auto wrong = wrong_count(*command, invocation.arguments.size()))
      return std::unexpected(usage_error(program, command, *wrong));
  }
  return invocation;
}

}  // namespace gpushare
