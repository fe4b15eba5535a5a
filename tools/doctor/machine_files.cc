// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/machine_files.h"

#include <algorithm>
#include <charconv>
#include <fstream>

namespace gpushare {

std::optional<std::pair<int, int>> leading_version(std::string_view text) {
  std::pair<int, int> version;
  const char* end = text.end();
  const auto major = std::from_chars(text.begin(), end, version.first);
  if (major.ec != std::errc{} || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, version.second);
  if (minor.ec != std::errc{}) return std::nullopt;
  return version;
}

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

std::optional<std::string> MachineFiles::variable(int pid, std::string_view name) const {
  std::ifstream file(at("/proc/" + std::to_string(pid) + "/environ"));
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  return std::nullopt;
}

std::optional<std::string> MachineFiles::line_with(const std::string& path,
                                                   std::string_view words) const {
  std::ifstream file(at(path));
  for (std::string line; std::getline(file, line);)
    if (line.find(words) != std::string::npos) return line;
  return std::nullopt;
}

bool MachineFiles::ends_with(const std::string& path, std::string_view ending) const {
  std::ifstream file(at(path), std::ios::binary);
  file.seekg(-static_cast<std::streamoff>(ending.size()), std::ios::end);
  std::string end(ending.size(), '\0');
  return file.read(end.data(), static_cast<std::streamsize>(end.size())) && end == ending;
}

std::vector<std::string> MachineFiles::names_in(const char* folder) const {
  std::vector<std::string> names;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(at(folder), code))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

}  // namespace gpushare
