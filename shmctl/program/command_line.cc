// SPDX-License-Identifier: Apache-2.0
#include "shmctl/program/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "shmctl/base/version.h"
#include "shmctl/program/completion.h"
#include "shmctl/program/help.h"
#include "shmctl/program/nearest.h"

namespace gpushare {
namespace {

// Where CLI11 puts what it finds; addresses must stay as they are while the parser lives.
struct Parser {
  CLI::App app;
  std::map<const CLI::App*, const Command*> commands;
  std::vector<std::string> arguments;
};

bool may_lack_value(const Option& option) { return option.value.starts_with('['); }

void add_options(CLI::App& app, const std::vector<Option>& options) {
  for (const Option& option : options) {
    std::string names = fmt::format("--{}", option.name);
    if (option.letter != 0) names += fmt::format(",-{}", option.letter);
    if (option.value.empty()) {
      app.add_flag(names)->disable_flag_override();
    } else {
      // Always exactly one value: `--max "30000 100000"` is one, and the next word is another
      // thing.
      app.add_option(names)
          ->expected(may_lack_value(option) ? 0 : 1, 1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

void prepare(Parser& parser, CLI::App& app, const Command& command) {
  app.set_help_flag();
  app.allow_extras();
  if (command.starts_program) app.positionals_at_end();
  add_options(app, command.options);
  parser.commands[&app] = &command;
  if (command.commands.empty()) app.add_option("arguments", parser.arguments);
}

void build(Parser& parser, const Command& program) {
  prepare(parser, parser.app, program);
  parser.app.add_flag("-h,--help");
  parser.app.add_flag("-V,--version");
  for (const Command& command : program.commands) {
    CLI::App& sub = *parser.app.add_subcommand(command.name);
    sub.fallthrough();
    prepare(parser, sub, command);
  }
  if (!program.commands.empty()) parser.app.require_subcommand(0, 1);
}

void collect(const CLI::App& app, const Command& command, Invocation& into) {
  for (const Option& option : command.options) {
    const CLI::Option* parsed = app.get_option("--" + option.name);
    const char* variable = option.variable.empty() ? nullptr : std::getenv(option.variable.c_str());
    if (parsed->count() != 0)
      into.options[option.name] = option.value.empty() ? "" : parsed->results().back();
    else if (variable != nullptr && *variable != '\0')
      into.options[option.name] = variable;
  }
}

std::string meant(std::string_view guess, std::string_view before, std::string_view after) {
  return guess.empty() ? "" : fmt::format("did you mean {}{}{}?", before, guess, after);
}

std::string unknown_word(const Invocation& in, const std::string& word) {
  std::vector<std::string_view> names;
  if (word.starts_with('-')) {
    names = {"help", "version"};
    for (const Command* level : {in.program, in.command})
      for (const Option& option : level->options)
        if (!option.help.empty()) names.push_back(option.name);
    const std::string_view typed(
        word.begin() + static_cast<ptrdiff_t>(std::min(word.find_first_not_of('-'), word.size())),
        word.end());
    const std::string guess = meant(nearest(typed.substr(0, typed.find('=')), names), "--", "");
    return fmt::format("unknown option {}{}{}", word, guess.empty() ? "" : "; ", guess);
  }
  for (const Command& command : in.program->commands) names.push_back(command.name);
  const std::string guess = meant(nearest(word, names), "'", "'");
  return fmt::format(
      "unknown command '{}'; {}", word,
      guess.empty() ? fmt::format("the commands are: {}", fmt::join(names, ", ")) : guess);
}

// How many arguments "TENANT KEY=VALUE..." or "[--] PROGRAM [ARGUMENT...]" allows.
std::pair<size_t, size_t> argument_counts(const Command& command) {
  size_t needed = 0, most = 0;
  std::string_view rest = command.arguments;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (word == "[--]") continue;
    ++most;
    if (!word.starts_with('[')) ++needed;
  }
  return {needed, command.arguments.find("...") == std::string::npos ? most : SIZE_MAX};
}

std::string wrong_arguments(const Invocation& in) {
  const Command& command = *in.command;
  const std::vector<std::string>& arguments = in.arguments;
  const auto [needed, most] = argument_counts(command);
  if (arguments.size() < needed) return fmt::format("{} needs {}", command.name, command.arguments);
  if (arguments.size() > most && most > 0)
    return fmt::format("{} takes only {}", command.name, command.arguments);
  if (arguments.size() > most)
    return fmt::format("unexpected argument '{}'; {} takes options only", arguments[0],
                       command.name);
  const std::vector<std::string> choices = command.choices();
  if (choices.empty() || std::ranges::find(choices, arguments[0]) != choices.end()) return "";
  return fmt::format("'{}' is none of: {}", arguments[0], fmt::join(choices, ", "));
}

template <class Number>
std::optional<Number> parse_number(const std::string& text, const Range& range) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, number);
  const auto value = static_cast<double>(number);
  if (failure != std::errc{} || rest != end || !(value >= range.least && value <= range.most))
    return std::nullopt;
  return number;
}

std::string wrong_number(const Command& command, const Invocation& in) {
  for (const Option& option : command.options) {
    const auto text = in.value(option.name);
    if (!option.range || !text) continue;
    const Range& range = *option.range;
    if (range.is_whole ? parse_number<uint64_t>(*text, range).has_value()
                       : parse_number<double>(*text, range).has_value())
      continue;
    return fmt::format("--{} takes a {}number, {}, not '{}'", option.name,
                       range.is_whole ? "whole " : "", range_text(range), *text);
  }
  return "";
}

// CLI11 says "--name: 1 required TEXT missing" or "name was given a disallowed flag override".
std::string wrong_value(std::string_view text) {
  const std::string_view name = text.substr(0, text.find_first_of(": "));
  const bool is_missing = text.substr(name.size()).starts_with(':');
  return fmt::format("option {}{} {}", name.starts_with('-') ? "" : "--", name,
                     is_missing ? "needs a value" : "takes no value");
}

// What is wrong with words that the parser took; empty: nothing is.
std::string complaint(const Parser& parser, const CLI::App& app, Invocation& in) {
  for (const CLI::App* level : {&app, &parser.app})
    for (const std::string& word : level->remaining())
      if (word != "--") return unknown_word(in, word);
  collect(parser.app, *in.program, in);
  if (in.command != in.program) collect(app, *in.command, in);
  for (const Command* level : {in.program, in.command})
    if (std::string wrong = wrong_number(*level, in); !wrong.empty()) return wrong;
  in.arguments = parser.arguments;
  return wrong_arguments(in);
}

Stop usage_error(const Invocation& in, std::string_view text) {
  return {kExitUsage,
          fmt::format("{}: {}\nTry '{}{} --help'.\n", in.program->name, text, in.program->name,
                      in.command == in.program ? "" : " " + in.command->name)};
}

// `PROGRAM help [COMMAND]`.
Stop help_on(const Command& program, const std::vector<std::string>& words) {
  if (words.empty()) return {kExitOk, help_text(program, program)};
  const auto named = std::ranges::find(program.commands, words.front(), &Command::name);
  if (named != program.commands.end()) return {kExitOk, help_text(program, *named)};
  const Invocation in{.program = &program, .command = &program};
  return usage_error(in, unknown_word(in, words.front()));
}

const Option* find_option(const Invocation& in, std::string_view name) {
  for (const Command* level : {in.command, in.program})
    for (const Option& option : level->options)
      if (option.name == name) return &option;
  return nullptr;
}

}  // namespace

Option number_option(std::string name, std::string value, std::string help, Range range,
                     std::string otherwise) {
  return {.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help),
          .otherwise = std::move(otherwise),
          .range = range};
}

std::string Option::heading() const {
  std::string text = letter == 0 ? "" : std::string{'-', letter} + ", ";
  text += "--" + name;
  return value.empty() ? text : text + (may_lack_value(*this) ? "" : " ") + value;
}

std::vector<std::string> Command::choices() const {
  std::vector<std::string> words;
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  if (arguments.find('|') == std::string::npos || std::ranges::any_of(arguments, is_upper))
    return words;
  for (size_t at = 0; at <= arguments.size();) {
    const size_t end = std::min(arguments.find('|', at), arguments.size());
    words.push_back(arguments.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::optional<std::string> Invocation::value(std::string_view option) const {
  const auto found = options.find(option);
  if (found == options.end()) return std::nullopt;
  return found->second;
}

std::string Invocation::text(std::string_view option) const {
  const Option* const known = find_option(*this, option);
  return value(option).value_or(known == nullptr ? "" : known->otherwise);
}

double Invocation::number(std::string_view option) const {
  return parse_number<double>(text(option), find_option(*this, option)->range.value()).value();
}

uint64_t Invocation::whole(std::string_view option) const {
  return parse_number<uint64_t>(text(option), find_option(*this, option)->range.value()).value();
}

Nanos Invocation::seconds(std::string_view option) const {
  return Nanos(std::llround(number(option) * 1e9));
}

ExitCode Invocation::wrong(std::string_view text) const {
  const Stop stop = usage_error(*this, text);
  fmt::print(stderr, "{}", stop.text);
  return stop.code;
}

std::expected<Invocation, Stop> parse_args(const Command& program, int argc,
                                           const char* const* argv) {
  if (!program.commands.empty() && argc > 1 && argv[1] == std::string_view("help"))
    return std::unexpected(help_on(program, {argv + 2, argv + argc}));
  Parser parser;
  build(parser, program);
  std::string wrong;
  try {
    parser.app.parse(argc, argv);
  } catch (const CLI::ArgumentMismatch& error) {
    wrong = wrong_value(error.what());
  } catch (const CLI::ParseError& error) {
    wrong = error.what();
  }
  const auto named = parser.app.get_subcommands();
  const CLI::App& app = named.empty() ? parser.app : *named.front();
  Invocation in{.program = &program, .command = parser.commands.at(&app)};
  if (parser.app.count("--help") != 0)
    return std::unexpected(Stop{kExitOk, help_text(program, *in.command)});
  if (parser.app.count("--version") != 0)
    return std::unexpected(
        Stop{kExitOk, fmt::format("{} {} ({})\n", program.name, kVersion, kCommit)});
  const bool lacks_command = !program.commands.empty() && named.empty();
  if (wrong.empty()) wrong = complaint(parser, app, in);
  if (!wrong.empty()) return std::unexpected(usage_error(in, wrong));
  if (lacks_command) return std::unexpected(Stop{kExitUsage, help_text(program, program)});
  return in;
}

int run_program(const Command& program, int argc, const char* const* argv) try {
  if (argc == 3 && argv[1] == std::string_view("--print-completion")) {
    fmt::print("{}", completion_script(program, argv[2]));
    return finish_output(program.name, kExitOk);
  }
  const auto invocation = parse_args(program, argc, argv);
  if (invocation) return finish_output(program.name, invocation->command->run(*invocation));
  const Stop& stop = invocation.error();
  fmt::print(stop.code == kExitOk ? stdout : stderr, "{}", stop.text);
  return finish_output(program.name, stop.code);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s: %s\n", program.name.c_str(), error.what());
  return kExitFailure;
}

ExitCode finish_output(std::string_view program, ExitCode code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "{}: write output: {}\n", program, std::strerror(errno));
  return kExitFailure;
}

}  // namespace gpushare
