// SPDX-License-Identifier: Apache-2.0
#include "shmctl/program/temp_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <utility>

namespace gpushare {

Result<TempFolder> TempFolder::make(const std::string& name) {
  std::error_code error;
  const auto temporary = std::filesystem::temp_directory_path(error);
  std::string path = (error ? "/tmp" : temporary.string()) + "/" + name + "-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return errno_error("make a temporary folder", path);
  return TempFolder(std::move(path));
}

TempFolder::TempFolder(TempFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TempFolder::~TempFolder() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
}

}  // namespace gpushare
