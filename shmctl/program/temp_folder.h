// SPDX-License-Identifier: Apache-2.0
// TempFolder: a fresh folder for this process alone, which goes away with all that is in it.
#pragma once

#include <string>

#include "shmctl/base/error.h"

namespace gpushare {

class TempFolder {
 public:
  // Makes NAME-XXXXXX where temporary files belong ($TMPDIR, otherwise /tmp).
  static Result<TempFolder> make(const std::string& name);
  TempFolder(TempFolder&& other) noexcept;
  TempFolder& operator=(TempFolder&&) = delete;
  ~TempFolder();

  const std::string& path() const { return path_; }
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit TempFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;  // empty: moved from
};

}  // namespace gpushare
