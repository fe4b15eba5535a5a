// SPDX-License-Identifier: Apache-2.0
#include "tools/base/command_line.h"

#include <algorithm>
#include <numeric>

namespace gpushare {
namespace {

// Edits (insert, delete, replace) that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

const CommandSpec* find_command(const ProgramSpec& program, std::string_view name) {
  const auto found = std::ranges::find(program.commands, name, &CommandSpec::name);
  return found == program.commands.end() ? nullptr : &*found;
}

std::string option_heading(const OptionSpec& option) {
  std::string text;
  if (option.letter != 0) text = std::string{'-', option.letter} + ", ";
  text += "--";
  text += option.name;
  if (!option.value.empty()) {
    text += ' ';
    text += option.value;
  }
  return text;
}

std::string_view closest(std::string_view typed, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  size_t best_distance = std::max<size_t>(typed.size() / 3, 1) + 1;  // farther is another word
  for (std::string_view candidate : candidates) {
    const size_t distance = edit_distance(typed, candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace gpushare
