// SPDX-License-Identifier: Apache-2.0
// Looking at a machine's files below some root. Missing and unreadable are told apart.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace gpushare {

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

  std::filesystem::path at(std::string_view path) const;

 private:
  std::filesystem::path root_;
};

}  // namespace gpushare
