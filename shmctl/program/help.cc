// SPDX-License-Identifier: Apache-2.0
#include "shmctl/program/help.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpushare {
namespace {

constexpr size_t kWidth = 80;

std::string paragraphs(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);  // of a list
  return text.empty() ? "" : fmt::format("\n{}\n", wrap(text, kWidth, 0));
}

void add_options(const Command& command, std::vector<HelpEntry>& list) {
  for (const Option& option : command.options)
    if (!option.help.empty())
      list.push_back({(option.letter == 0 ? "    " : "") + option.heading(), option_text(option)});
}

std::string number_text(double number) {
  const auto whole = static_cast<int64_t>(number);
  return static_cast<double>(whole) == number ? fmt::format("{}", whole)
                                              : fmt::format("{}", number);
}

}  // namespace

std::string wrap(std::string_view text, size_t width, size_t indent) {
  std::string out;
  const std::string margin(indent, ' ');
  while (true) {
    const std::string_view line = text.substr(0, text.find('\n'));
    std::string_view rest = line;
    do {
      std::string_view piece = rest;
      if (indent + rest.size() > width) {
        const size_t space = rest.rfind(' ', width - indent);
        piece = rest.substr(0, space == std::string_view::npos ? rest.find(' ') : space);
      }
      if (!out.empty()) out += '\n';
      if (!piece.empty()) out += margin;
      out += piece;
      rest.remove_prefix(std::min(rest.size(), piece.size() + 1));
    } while (!rest.empty());
    if (line.size() == text.size()) return out;
    text.remove_prefix(line.size() + 1);
  }
}

std::string range_text(const Range& range) {
  if (range.most >= kNoLimit) return number_text(range.least) + " or more";
  return number_text(range.least) + " to " + number_text(range.most);
}

std::string option_text(const Option& option) {
  std::string text = option.help;
  if (option.range) text += ", " + range_text(*option.range);
  std::string otherwise = option.otherwise;
  if (!option.variable.empty())
    otherwise += fmt::format("{}${}", otherwise.empty() ? "" : ", or ", option.variable);
  return text + (otherwise.empty() ? "." : fmt::format(" ({}).", otherwise));
}

// A heading that is too long gets a line of its own.
std::string entries_text(const std::vector<HelpEntry>& list) {
  constexpr size_t kLongest = 24;
  size_t column = 0;
  for (const HelpEntry& entry : list)
    if (entry.heading.size() <= kLongest) column = std::max(column, entry.heading.size());
  column += 4;
  std::string out;
  for (const HelpEntry& entry : list) {
    const std::string text = wrap(entry.text, kWidth, column);
    if (entry.heading.size() > kLongest)
      out += fmt::format("  {}\n{}\n", entry.heading, text);
    else
      out += fmt::format("  {:<{}}{}\n", entry.heading, column - 2,
                         text.substr(std::min(column, text.size())));
  }
  return out;
}

std::string help_text(const Command& program, const Command& command) {
  const bool is_program = &program == &command;
  const std::string name = is_program ? program.name : program.name + " " + command.name;
  std::vector<HelpEntry> own, common;
  if (!is_program) add_options(command, own);
  add_options(program, common);
  common.push_back({"-h, --help", "Print this text."});
  common.push_back({"-V, --version", "Print the version."});

  std::string out = wrap(fmt::format("{}: {}", name, command.summary), kWidth, 0);
  out += fmt::format("\n\nUsage: {}{}{}{}{}\n", name, command.commands.empty() ? "" : " COMMAND",
                     is_program || !own.empty() ? " [OPTIONS]" : "",
                     command.arguments.empty() ? "" : " ", command.arguments);
  if (!is_program) out += paragraphs(command.details);
  if (!command.commands.empty()) {
    std::vector<HelpEntry> commands;
    commands.reserve(command.commands.size());
    for (const Command& each : command.commands) commands.push_back({each.name, each.summary});
    out += "\nCommands:\n" + entries_text(commands);
  }
  if (!own.empty()) out += "\nOptions:\n" + entries_text(own);
  out += (is_program ? "\nOptions:\n" : "\nCommon options:\n") + entries_text(common);
  if (is_program) out += paragraphs(command.details);
  if (!command.examples.empty()) out += "\nExamples:\n";
  for (const std::string& example : command.examples) out += fmt::format("  {}\n", example);
  return out;
}

}  // namespace gpushare
