// SPDX-License-Identifier: Apache-2.0
// Programs that have another process do their work: a daemon, a server that runs already, another
// machine. What they start is no child of theirs, so that `gpushare run` cannot hold it. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace gpushare {

// What to say of the command line `words`, the program first: who starts the work, and which way of
// placing it holds. nullopt: it starts its work itself, as far as its name tells.
std::optional<std::string> starts_elsewhere(std::span<const std::string> words);

}  // namespace gpushare
