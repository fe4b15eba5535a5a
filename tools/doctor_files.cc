// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor_files.h"

#include <algorithm>
#include <fstream>

namespace gpushare {

std::filesystem::path MachineFiles::at(std::string_view path) const {
  return root_ / path.substr(std::min(path.find_first_not_of('/'), path.size()));
}

MachineFiles::Presence MachineFiles::presence(const char* path) const {
  std::error_code code;
  const auto status = std::filesystem::status(at(path), code);
  if (std::filesystem::exists(status)) return Presence::kPresent;
  return status.type() == std::filesystem::file_type::not_found ? Presence::kAbsent
                                                                : Presence::kHidden;
}

std::optional<std::string> MachineFiles::text(const char* path) const {
  std::ifstream file(at(path));
  if (!file) return std::nullopt;
  std::string text(4096, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

std::optional<std::string> MachineFiles::process_named(std::string_view name) const {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(at("/proc"), code)) {
    std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto comm = text(("/proc/" + pid + "/comm").c_str());
    if (comm && comm->starts_with(name)) return pid;
  }
  return std::nullopt;
}

}  // namespace gpushare
