// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/agent_service.h"

#include <algorithm>
#include <system_error>

namespace gpushare {
namespace {

// Where administrators, packages and `make install` with the usual PREFIX put units.
constexpr const char* kUnitFolders[] = {"etc/systemd/system", "run/systemd/system",
                                        "usr/local/lib/systemd/system", "usr/lib/systemd/system",
                                        "lib/systemd/system"};

// Returns whether systemd runs the machine, as sd_booted(3) tells it, and has a unit of the agent.
bool is_service(const std::filesystem::path& root) {
  std::error_code code;
  return std::filesystem::is_directory(root / "run/systemd/system", code) &&
         std::ranges::any_of(kUnitFolders, [&](const char* folder) {
           return std::filesystem::exists(root / folder / "gpushared.service", code);
         });
}

}  // namespace

std::string how_to_start(const std::filesystem::path& root) {
  return is_service(root) ? "systemctl start gpushared" : "run gpushared as root";
}

std::string how_to_restart(const std::filesystem::path& root) {
  return is_service(root) ? "systemctl restart gpushared"
                          : "end gpushared, and run it again as root";
}

}  // namespace gpushare
