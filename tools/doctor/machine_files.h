// SPDX-License-Identifier: Apache-2.0
// MachineFiles looks at a machine's files below some root. It tells missing files from unreadable
// ones.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpushare {

// Reads {6, 1} from "6.1.0-18-amd64". Returns nullopt where there are no such numbers.
std::optional<std::pair<int, int>> leading_version(std::string_view text);

class MachineFiles {
 public:
  explicit MachineFiles(std::filesystem::path root) : root_(std::move(root)) {}

  enum class Presence { kPresent, kAbsent, kHidden };  // hidden: a directory may not be read
  Presence presence(const char* path) const;
  bool has(const char* path) const { return presence(path) == Presence::kPresent; }
  // Returns the first 4 KiB, without the newline at the end; nullopt if it cannot be read.
  std::optional<std::string> text(const char* path) const;
  // Returns the pid of a process whose name begins with `name`. The kernel keeps 15 characters.
  std::optional<std::string> process_named(std::string_view name) const;
  // Returns a variable of the environment that the process was started with; nullopt if there is
  // none or this user may not read it.
  std::optional<std::string> variable(int pid, std::string_view name) const;
  // Returns the first line that contains `words`, however long the file is.
  std::optional<std::string> line_with(const std::string& path, std::string_view words) const;
  // Returns whether the file ends with `ending`.
  bool ends_with(const std::string& path, std::string_view ending) const;
  // Returns the sorted names of what is in a folder; none if it cannot be read.
  std::vector<std::string> names_in(const char* folder) const;

  std::filesystem::path at(std::string_view path) const;

 private:
  std::filesystem::path root_;
};

}  // namespace gpushare
