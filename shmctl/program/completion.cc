// SPDX-License-Identifier: Apache-2.0
#include "shmctl/program/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <sstream>

#include "shmctl/program/help.h"

namespace gpushare {
namespace {

// What a shell may offer for a value or an argument.
enum class Offers { kNothing, kWords, kKeys, kFiles, kTenants, kPids, kTargets, kCommands };

struct Offer {
  Offers kind = Offers::kNothing;
  std::string words{};  // with kWords and kKeys
};

// The name of a value says what fits.
Offer offer_for(const Option& option) {
  if (!option.words.empty()) return {Offers::kWords, option.words};
  if (option.value == "TENANT") return {Offers::kTenants};
  const bool is_file = option.value == "FILE" || option.value == "DIR" || option.value == "PATH";
  return {is_file ? Offers::kFiles : Offers::kNothing};
}

// What each argument may be.
struct Arguments {
  std::vector<Offer> offers{};
  bool do_repeat = false;  // the last one stands for all that follow
};
Arguments arguments_of(const Command& command) {
  if (command.starts_program) return {{{Offers::kCommands}}};
  if (const auto choices = command.choices(); !choices.empty())
    return {{{Offers::kWords, fmt::format("{}", fmt::join(choices, " "))}}};
  Arguments arguments;
  std::istringstream words(command.arguments);
  for (std::string word; words >> word;) {
    arguments.do_repeat = word.ends_with("...");
    arguments.offers.push_back({word == "PID|TENANT"            ? Offers::kTargets
                                : word == "TENANT"              ? Offers::kTenants
                                : word == "PID"                 ? Offers::kPids
                                : word.starts_with("KEY=VALUE") ? Offers::kKeys
                                                                : Offers::kNothing,
                                command.argument_words});
  }
  return arguments;
}

// The name of the function that completes for a program, in bash.
std::string function_of(const Command& program) {
  std::string name = "_" + program.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

// What tables of `gpushare` are read for names, in all shells.
constexpr std::string_view kTenantsPipe =
    "gpushare tenants 2>/dev/null | awk '$1 == \"TENANT\" { on = 1; next } on { print $1 }'";
constexpr std::string_view kPidsPipe =
    "gpushare status 2>/dev/null | awk '$2 == \"PID\" { on = 1; next } on { print $2 }'";

// What every program has beside what it declares.
constexpr const char* kOwnOptions = "--help --version -h -V";

std::string in_single_quotes(std::string_view text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Those that are not hidden.
auto shown(const std::vector<Option>& options) {
  return std::views::filter(options, [](const Option& option) { return !option.help.empty(); });
}

// "--tenant -t " and so on.
std::string option_words(const std::vector<Option>& options) {
  std::string words;
  for (const Option& option : shown(options)) {
    words += fmt::format("--{} ", option.name);
    if (option.letter != 0) words += fmt::format("-{} ", option.letter);
  }
  return words;
}

// --- bash ---

std::string bash_words(std::string_view list) {
  return fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$cur\"))", list);
}

std::string bash_offer(const Offer& offer) {
  switch (offer.kind) {
    case Offers::kNothing:
      return "COMPREPLY=()";
    case Offers::kWords:
      return bash_words(offer.words);
    case Offers::kKeys:
      return fmt::format("_gpushare_keys \"{}\"", offer.words);
    case Offers::kFiles:
      return "COMPREPLY=($(compgen -f -- \"$cur\"))";
    case Offers::kTenants:
      return bash_words("$(_gpushare_tenants)");
    case Offers::kPids:
      return bash_words("$(_gpushare_pids)");
    case Offers::kTargets:
      return bash_words("$(_gpushare_tenants; _gpushare_pids)");
    case Offers::kCommands:
      return "COMPREPLY=($(compgen -c -f -- \"$cur\"))";
  }
  return "";
}

// The value of the option before the cursor.
std::string bash_values(std::string_view command, const std::vector<Option>& options) {
  std::string out;
  for (const Option& option : shown(options)) {
    if (option.value.empty()) continue;
    std::string pattern = fmt::format("{}:--{}", command, option.name);
    if (option.letter != 0) pattern += fmt::format(" | {}:-{}", command, option.letter);
    out += fmt::format("    {}) {}; return ;;\n", pattern, bash_offer(offer_for(option)));
  }
  return out;
}

// By the number of arguments before the cursor, which is in n.
std::string bash_arguments(const Command& command) {
  const Arguments arguments = arguments_of(command);
  if (arguments.offers.empty()) return "COMPREPLY=()";
  std::string cases;
  for (size_t i = 0; i < arguments.offers.size(); ++i) {
    const bool is_rest =
        i + 1 == arguments.offers.size() && (arguments.do_repeat || arguments.offers.size() == 1);
    cases += fmt::format("{}) {} ;; ", is_rest ? "*" : std::to_string(i),
                         bash_offer(arguments.offers[i]));
  }
  return fmt::format("case $n in {}esac", cases);
}

// Words KEY= and KEY=VALUE. Bash takes KEY, = and VALUE for three words.
constexpr std::string_view kBashKeys =
    "_gpushare_keys() {\n"
    "  local key= word\n"
    "  if [[ $cur == = ]]; then key=$prev cur=; fi\n"
    "  if [[ $prev == = ]]; then key=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
    "  for word in $1; do\n"
    "    if [[ -n $key ]]; then\n"
    "      [[ $word == \"$key=\"?* && ${word#*=} == \"$cur\"* ]] && COMPREPLY+=(\"${word#*=}\")\n"
    "    elif [[ $word == \"$cur\"* && ( $word == *= || $cur == *=* ) ]]; then\n"
    "      COMPREPLY+=(\"$word\")\n"
    "    fi\n"
    "  done\n"
    "  [[ -n $key || $cur == *=* ]] || compopt -o nospace 2>/dev/null\n"
    "  return 0\n"
    "}\n";

std::string bash_script(const Command& program) {
  std::string value_options, commands, values, arguments;
  for (const Option& option : shown(program.options))
    if (!option.value.empty())
      value_options += fmt::format("{}--{}", value_options.empty() ? "" : " | ", option.name);
  for (const Command& command : program.commands) {
    commands += fmt::format("{}{}", commands.empty() ? "" : " ", command.name);
    values += bash_values(command.name, command.options);
    arguments += fmt::format(
        "    {}) if [[ $cur == -* ]]; then {}; else {}; fi ;;\n", command.name,
        bash_words(option_words(command.options) + option_words(program.options) + kOwnOptions),
        bash_arguments(command));
  }
  if (!program.commands.empty()) {
    arguments += fmt::format("    help) {} ;;\n", bash_words(commands));
    commands += " help ";
  }
  values += bash_values("*", program.options);
  return fmt::format(
      "# bash completion for {0}; generated by '{0} --print-completion bash'\n"
      "_gpushare_tenants() {{ {1}; }}\n"
      "_gpushare_pids() {{ {2}; }}\n"
      "{7}"
      "{8}() {{\n"
      "  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} command= i "
      "n=0\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${{COMP_WORDS[i]}} in\n"
      "      {3}) [[ ${{COMP_WORDS[i + 1]}} == = ]] && ((i++)); ((i++)) ;;\n"
      "      -*) ;;\n"
      "      *) if [[ -n $command ]]; then ((n++)); else command=${{COMP_WORDS[i]}}; fi ;;\n"
      "    esac\n"
      "  done\n"
      "  COMPREPLY=()\n"
      "  local option=$prev\n"
      "  if [[ $cur == = && $prev == --* ]]; then cur=\n"
      "  elif [[ $prev == = && ${{COMP_WORDS[COMP_CWORD - 2]}} == --* ]]; then "
      "option=${{COMP_WORDS[COMP_CWORD - 2]}}; fi\n"
      "  case $command:$option in\n"
      "{4}"
      "  esac\n"
      "  case $command in\n"
      "    '') {5} ;;\n"
      "{6}"
      "  esac\n"
      "}}\n"
      "complete -F {8} {0}\n",
      program.name, kTenantsPipe, kPidsPipe, value_options.empty() ? "--" : value_options, values,
      bash_words(commands + option_words(program.options) + kOwnOptions), arguments, kBashKeys,
      function_of(program));
}

// --- zsh ---

// What the two shells are told to offer; "{}" stands for the words.
struct Spelling {
  Offers kind;
  const char* zsh;
  const char* fish;
};

constexpr Spelling kSpellings[] = {
    {Offers::kNothing, " ", "-f"},
    {Offers::kWords, "({})", "-f -a {}"},
    {Offers::kKeys, "({})", "-f -a {}"},
    {Offers::kFiles, "_files", "-F"},
    {Offers::kTenants, "_gpushare_tenants", "-f -a '(__gpushare_tenants)'"},
    {Offers::kPids, "_gpushare_pids", "-f -a '(__gpushare_pids)'"},
    {Offers::kTargets, "_gpushare_targets", "-f -a '(__gpushare_tenants; __gpushare_pids)'"},
    {Offers::kCommands, "_command_names -e", "-a '(__fish_complete_subcommand --fcs-skip=2)'"},
};

std::string spelt(const Offer& offer, const char* Spelling::* shell, const std::string& words) {
  std::string text = std::ranges::find(kSpellings, offer.kind, &Spelling::kind)->*shell;
  if (const size_t place = text.find("{}"); place != std::string::npos)
    text.replace(place, 2, words);
  return text;
}

std::string zsh_action(const Offer& offer) { return spelt(offer, &Spelling::zsh, offer.words); }

// In an _arguments spec these would end the description.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_option(const Option& option) {
  std::string tail = fmt::format("[{}]", zsh_text(option_text(option)));
  if (!option.value.empty())
    tail += fmt::format(":{}:{}", zsh_text(option.value), zsh_action(offer_for(option)));
  std::string out = "      " + in_single_quotes(fmt::format("--{}{}", option.name, tail)) + " \\\n";
  if (option.letter != 0)
    out += "      " + in_single_quotes(fmt::format("-{}{}", option.letter, tail)) + " \\\n";
  return out;
}

std::string zsh_arguments(const Command& command) {
  const Arguments arguments = arguments_of(command);
  std::string out = "     ";
  for (size_t i = 0; i < arguments.offers.size(); ++i) {
    const bool is_rest = arguments.do_repeat && i + 1 == arguments.offers.size();
    out += fmt::format(" '{}:argument:{}'", is_rest ? "*" : std::to_string(i + 1),
                       zsh_action(arguments.offers[i]));
  }
  return out + " ;;\n";
}

std::string zsh_script(const Command& program) {
  std::string common =
      "      '--help[Print this text.]' \\\n      '--version[Print the version.]' \\\n";
  for (const Option& option : shown(program.options)) common += zsh_option(option);
  std::string names, cases;
  for (const Command& command : program.commands) {
    names += "    " +
             in_single_quotes(fmt::format("{}:{}", command.name, zsh_text(command.summary))) + "\n";
    cases += fmt::format("    {}) _arguments -s \\\n{}", command.name, common);
    for (const Option& option : shown(command.options)) cases += zsh_option(option);
    if (command.starts_program)
      cases += "      '(-)1:program:_command_names -e' '*::argument:_normal' ;;\n";
    else if (!command.arguments.empty())
      cases += zsh_arguments(command);
    else
      cases += "      && return ;;\n";
  }
  if (program.commands.empty())
    return fmt::format(
        "#compdef {0}\n"
        "# zsh completion for {0}; generated by '{0} --print-completion zsh'\n"
        "_{0}() {{ _arguments -s \\\n{1}      && return; }}\n"
        "if [ \"$funcstack[1]\" = _{0} ]; then _{0} \"$@\"; else compdef _{0} {0}; fi\n",
        program.name, common);
  return fmt::format(
      "#compdef {0}\n"
      "# zsh completion for {0}; generated by '{0} --print-completion zsh'\n"
      "_gpushare_tenants() {{ compadd -- ${{(f)\"$({1})\"}}; }}\n"
      "_gpushare_pids() {{ compadd -- ${{(f)\"$({2})\"}}; }}\n"
      "_gpushare_targets() {{ _gpushare_tenants; _gpushare_pids; }}\n"
      "_{0}() {{\n"
      "  local state line curcontext=$curcontext\n"
      "  local -a commands\n"
      "  commands=(\n{3}  )\n"
      "  _arguments -C \\\n{4}"
      "      '1:command:->command' '*::argument:->argument' && return\n"
      "  case $state in\n"
      "    command) _describe command commands; return ;;\n"
      "  esac\n"
      "  case $line[1] in\n{5}"
      "  esac\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = _{0} ]; then _{0} \"$@\"; else compdef _{0} {0}; fi\n",
      program.name, kTenantsPipe, kPidsPipe, names, common, cases);
}

// --- fish ---

std::string fish_arguments(const Offer& offer) {
  return spelt(offer, &Spelling::fish, in_single_quotes(offer.words));
}

std::string fish_option(std::string_view program, std::string_view condition,
                        const Option& option) {
  std::string out = fmt::format("complete -c {}{} -l {}", program, condition, option.name);
  if (option.letter != 0) out += fmt::format(" -s {}", option.letter);
  if (!option.value.empty()) out += " -r " + fish_arguments(offer_for(option));
  return out + " -d " + in_single_quotes(option_text(option)) + "\n";
}

std::string fish_script(const Command& program) {
  std::string out = fmt::format(
      "# fish completion for {0}; generated by '{0} --print-completion fish'\n"
      "function __gpushare_tenants; {1}; end\n"
      "function __gpushare_pids; {2}; end\n"
      "complete -c {0} -f\n"
      "complete -c {0} -s h -l help -d 'Print this text.'\n"
      "complete -c {0} -s V -l version -d 'Print the version.'\n",
      program.name, kTenantsPipe, kPidsPipe);
  for (const Option& option : shown(program.options)) out += fish_option(program.name, "", option);
  for (const Command& command : program.commands) {
    out += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d {}\n", program.name,
                       command.name, in_single_quotes(command.summary));
    const std::string seen = fmt::format(" -n '__fish_seen_subcommand_from {}'", command.name);
    for (const Offer& offer : arguments_of(command).offers)
      out += fmt::format("complete -c {}{} {}\n", program.name, seen, fish_arguments(offer));
    for (const Option& option : shown(command.options))
      out += fish_option(program.name, seen, option);
  }
  return out;
}

}  // namespace

std::string completion_script(const Command& program, std::string_view shell) {
  return shell == "bash"  ? bash_script(program)
         : shell == "zsh" ? zsh_script(program)
                          : fish_script(program);
}

}  // namespace gpushare
