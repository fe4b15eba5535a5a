// SPDX-License-Identifier: Apache-2.0
// How a person starts the agent on this machine: as a service of systemd where that runs the
// machine, otherwise by hand. For messages that say what to do.
#pragma once

#include <filesystem>
#include <string>

namespace gpushare {

// "systemctl start gpushared", or words that say the same where there is no systemd, or no unit of
// the agent, as before the first `make install`. `root`: the folder below which the machine's files
// lie.
std::string how_to_start(const std::filesystem::path& root = "/");
std::string how_to_restart(const std::filesystem::path& root = "/");

}  // namespace gpushare
