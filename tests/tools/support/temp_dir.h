// SPDX-License-Identifier: Apache-2.0
// TempDir is a folder of this test alone, which is removed with everything in it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "shmctl/program/temp_folder.h"

namespace gpushare {

class TempDir {
 public:
  std::filesystem::path path() const { return folder_.path(); }
  std::string at(const std::string& name) const { return path() / name; }

  // Writes a file, with the directories above it.
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  static std::string read(const std::string& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  const TempFolder folder_ = TempFolder::make("gpushare-test").value();
};

}  // namespace gpushare
