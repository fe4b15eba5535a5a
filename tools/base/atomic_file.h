// SPDX-License-Identifier: Apache-2.0
// Writes a file so that it is there whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

// A file that is opened early, so that what is wrong with its place shows before the work is done,
// and written later. It lies beside `path` until it is whole, and goes away if it never is. If
// `path` is no regular file (/dev/null, a pipe), it is written directly; "-" is standard output.
class WholeFile {
 public:
  static Result<WholeFile> open(const std::string& path);
  WholeFile(WholeFile&& other) noexcept;
  WholeFile& operator=(WholeFile&&) = delete;
  ~WholeFile();

  // After an error no file of ours is left behind. To be called once.
  Result<> write(std::string_view contents);

 private:
  WholeFile(std::string path, std::string draft, Fd fd)
      : path_(std::move(path)), draft_(std::move(draft)), fd_(std::move(fd)) {}

  std::string path_;
  std::string draft_;  // empty: written directly, or done
  Fd fd_;
};

// Both steps at once.
Result<> write_whole_file(const std::string& path, std::string_view contents);

}  // namespace gpushare
