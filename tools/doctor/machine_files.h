// SPDX-License-Identifier: Apache-2.0
// Looking at a machine's files below some root. Missing and unreadable are told apart.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpushare {

// {6, 1} of "6.1.0-18-amd64"; nullopt where there are no such numbers.
std::optional<std::pair<int, int>> leading_version(std::string_view text);

class MachineFiles {
 public:
  explicit MachineFiles(std::filesystem::path root) : root_(std::move(root)) {}

  enum class Presence { kPresent, kAbsent, kHidden };  // hidden: a directory may not be read
  Presence presence(const char* path) const;
  bool has(const char* path) const { return presence(path) == Presence::kPresent; }
  // Without the newline at its end; nullopt if it cannot be read. Only the first 4 KiB.
  std::optional<std::string> text(const char* path) const;
  // A process whose name (at most 15 characters, as the kernel keeps it) begins with `name`.
  std::optional<std::string> process_named(std::string_view name) const;
  // The first line of the file, however long that is, that contains `words`.
  std::optional<std::string> line_with(const std::string& path, std::string_view words) const;
  // Does the file end so?
  bool ends_with(const std::string& path, std::string_view ending) const;
  // Names of what is in a folder, sorted; none if it cannot be read.
  std::vector<std::string> names_in(const char* folder) const;

  std::filesystem::path at(std::string_view path) const;

 private:
  std::filesystem::path root_;
};

}  // namespace gpushare
