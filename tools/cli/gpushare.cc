// SPDX-License-Identifier: Apache-2.0
// The command line of gpushare as a whole.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "shmctl/program/nearest.h"
#include "tools/base/endpoints.h"
#include "tools/cli/commands.h"
#include "tools/containers/cdi_command.h"
#include "tools/demo/sim_command.h"

namespace gpushare {
namespace {

// The option that a word is, "--json" or "--json=x"; nullptr: it is none of these.
const Option* option_of_word(const std::vector<Option>& options, std::string_view word) {
  const bool is_long = word.starts_with("--");
  const std::string_view name = is_long ? word.substr(2, word.find('=') - 2) : word.substr(1);
  const auto is_it = [&](const Option& option) {
    return is_long ? option.name == name
                   : option.letter != 0 && name == std::string_view(&option.letter, 1);
  };
  const auto found = std::ranges::find_if(options, is_it);
  return found == options.end() ? nullptr : &*found;
}

// The first of the words that names a command which has the option; otherwise the first command
// that has it, if it is in its place nowhere.
const Command* owner_of(const Command& program, std::string_view option,
                        std::span<const char* const> rest) {
  const auto has_it = [&](const Command& command) {
    return option_of_word(command.options, option) != nullptr;
  };
  for (const std::string_view word : rest) {
    const auto named = std::ranges::find(program.commands, word, &Command::name);
    if (named != program.commands.end()) return has_it(*named) ? &*named : nullptr;
  }
  const auto first = std::ranges::find_if(program.commands, has_it);
  return first == program.commands.end() ? nullptr : &*first;
}

}  // namespace

std::optional<std::string> misplaced_words(const Command& program,
                                           std::span<const char* const> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (!word.starts_with('-')) {
      std::vector<std::string_view> names{"reload"};
      for (const Command& command : program.commands) names.push_back(command.name);
      if (nearest(word, names) != "reload") return std::nullopt;
      return fmt::format(
          "unknown command '{}'; 'systemctl reload gpushared', or SIGHUP to gpushared, has it read "
          "its configuration again",
          word);
    }
    if (const Option* const own = option_of_word(program.options, word)) {
      if (!own->value.empty() && !(word.starts_with("--") && word.contains('='))) ++i;
      continue;
    }
    const std::string_view option = word.substr(0, word.find('='));
    if (option == "--help" || option == "-h" || option == "--version" || option == "-V")
      return std::nullopt;
    const Command* const owner = owner_of(program, option, words.subspan(i + 1));
    if (owner == nullptr) return std::nullopt;
    return fmt::format("{0} is an option of a command and comes after it: gpushare {1} {0}", option,
                       owner->name);
  }
  return std::nullopt;
}

Option json_option() { return {"json", 0, "", "Print JSON instead of text"}; }

const Command& gpushare_program() {
  static const Command program{
      .name = "gpushare",
      .summary = "share NVIDIA GPUs among unmodified programs.",
      .details =
          "Exit codes: 0 done, 1 failed, 2 wrong usage. 'gpushare COMMAND --help' explains a "
          "command; gpushare-top shows all of it live.",
      .options = endpoint_options(),
      .examples = {"gpushare run --weight 300 -- python train.py", "gpushare status",
                   "gpushare set research max=30%"},
      .commands = {run_command(),    sim_command(),     status_command(),  tenants_command(),
                   queue_command(),  set_command(),     remove_command(),  attach_command(),
                   freeze_command(), thaw_command(),    trace_command(),   profile_command(),
                   report_command(), preload_command(), doctor_command(),  recover_command(),
                   forget_command(), cdi_command(),     version_command(), completion_command()},
  };
  return program;
}

}  // namespace gpushare
