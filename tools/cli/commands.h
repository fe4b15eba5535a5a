// SPDX-License-Identifier: Apache-2.0
// The commands of gpushare. A group of commands is one file, which declares them and runs them.
// Each prints and returns the exit code.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "shmctl/program/command_line.h"

namespace gpushare {

// The whole command line; the completions and the tests read it too.
const Command& gpushare_program();

// What is wrong with the words behind the program's name, where the parser's own guess would lead
// astray: an option of a command stands before it, or a command has the name of what systemd does.
// nullopt: the parser may have them.
std::optional<std::string> misplaced_words(const Command& program,
                                           std::span<const char* const> words);

Command run_command();  // it returns only on failure

Command status_command();
Command tenants_command();
Command queue_command();

Command set_command();
Command remove_command();
Command attach_command();
Command freeze_command();
Command thaw_command();

Command trace_command();
Command profile_command();
Command report_command();

Command preload_command();
Command doctor_command();
Command recover_command();
Command forget_command();
Command version_command();
Command completion_command();

Option json_option();
// The options of `run` that are settings of a tenant, one for each of setting_keys().
std::vector<Option> setting_options();

}  // namespace gpushare
