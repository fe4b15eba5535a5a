// SPDX-License-Identifier: Apache-2.0
// The name under which something is learnt of a command: a hash of its words, so that what is kept
// on disk tells nothing of them. The program counts by its file name, so that it may be installed
// elsewhere. Pure.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gpushare {

// Of a command line, program first: sixteen hex digits. Any bytes will do.
std::string command_signature(std::span<const std::string> arguments);

// The same of a line whose arguments are separated by blanks, as they are known of a process: a
// blank in an argument counts as two arguments. Of an empty line: empty.
std::string command_signature(std::string_view line);

// The same, of one user's programs: what others run under the same name is not the same. nullopt:
// it is not known whose.
std::string command_signature(std::string_view line, std::optional<uid_t> user);

}  // namespace gpushare
