// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/agent_service.h"

#include <system_error>

namespace gpushare {
namespace {

// As sd_booted(3) tells it.
bool has_systemd(const std::filesystem::path& root) {
  std::error_code code;
  return std::filesystem::is_directory(root / "run/systemd/system", code);
}

}  // namespace

std::string how_to_start(const std::filesystem::path& root) {
  return has_systemd(root) ? "systemctl start gpushared" : "run gpushared as root";
}

std::string how_to_restart(const std::filesystem::path& root) {
  return has_systemd(root) ? "systemctl restart gpushared"
                           : "end gpushared, and run it again as root";
}

}  // namespace gpushare
