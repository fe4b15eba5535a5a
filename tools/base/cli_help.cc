// SPDX-License-Identifier: Apache-2.0
#include "tools/base/cli_help.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpushare {
namespace {

constexpr size_t kWidth = 80;

struct Entry {
  std::string heading;
  std::string_view text;
};

// Headings in one column, texts wrapped in the next; a heading that is too long gets its own line.
std::string entries(const std::vector<Entry>& list) {
  constexpr size_t kLongest = 24;
  size_t column = 0;
  for (const Entry& entry : list)
    if (entry.heading.size() <= kLongest) column = std::max(column, entry.heading.size());
  column += 4;
  std::string out;
  for (const Entry& entry : list) {
    const std::string text = wrap(entry.text, kWidth, column);
    if (entry.heading.size() > kLongest)
      out += fmt::format("  {}\n{}\n", entry.heading, text);
    else
      out += fmt::format("  {:<{}}{}\n", entry.heading, column - 2, text.substr(column));
  }
  return out;
}

std::string option_entries(const std::vector<OptionSpec>& options, bool with_help) {
  std::vector<Entry> list;
  for (const OptionSpec& option : options) {
    const std::string indent = option.letter == 0 ? "    " : "";
    list.push_back({indent + option_heading(option), option.help});
  }
  if (with_help) list.push_back({"-h, --help", "Print this text."});
  return entries(list);
}

std::string example_lines(const std::vector<std::string_view>& examples) {
  if (examples.empty()) return "";
  std::string out = "\nExamples:\n";
  for (std::string_view example : examples) out += fmt::format("  {}\n", example);
  return out;
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

std::string program_help(const ProgramSpec& program) {
  std::string out = fmt::format("{}: {}\n\n", program.name, program.summary);
  out += fmt::format("Usage: {}{} [OPTIONS]\n", program.name,
                     program.commands.empty() ? "" : " COMMAND");
  if (!program.commands.empty()) {
    out += "\nCommands:\n";
    std::vector<Entry> list;
    list.reserve(program.commands.size());
    for (const CommandSpec& command : program.commands)
      list.push_back({std::string(command.name), command.summary});
    out += entries(list);
  }
  out += "\nOptions:\n" + option_entries(program.options, true);
  if (!program.details.empty()) out += "\n" + wrap(program.details, kWidth, 0) + "\n";
  return out + example_lines(program.examples);
}

std::string command_help(const ProgramSpec& program, const CommandSpec& command) {
  std::string out =
      wrap(fmt::format("{} {}: {}", program.name, command.name, command.summary), kWidth, 0) +
      "\n\n";
  out += fmt::format("Usage: {} {}{}{}{}\n", program.name, command.name,
                     command.options.empty() ? "" : " [OPTIONS]",
                     command.arguments.empty() ? "" : " ", command.arguments);
  if (!command.details.empty()) out += "\n" + wrap(command.details, kWidth, 0) + "\n";
  if (!command.options.empty()) out += "\nOptions:\n" + option_entries(command.options, false);
  out += "\nCommon options:\n" + option_entries(program.options, true);
  return out + example_lines(command.examples);
}

}  // namespace gpushare
