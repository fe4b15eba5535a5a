// SPDX-License-Identifier: Apache-2.0
// FileWatch: sends a signal when a file is made in a folder, to a process that waits for signals
// only. The supervisor watches /dev with it, where the kernel makes a device file when a module is
// loaded. One thread.
#pragma once

#include <string>
#include <utility>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

class FileWatch {
 public:
  // From now on the calling process gets `signal` when a file is made in, or moved into, the folder
  // of `path`, whatever the file's name. Errors: those of inotify; no_such_file_or_directory when
  // the folder does not exist. The watch ends with the object.
  static Result<FileWatch> start(const std::string& path, int signal);

  // Must be called after each signal: otherwise no further signal comes. It never blocks.
  void drain();

 private:
  explicit FileWatch(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
};

}  // namespace gpushare
