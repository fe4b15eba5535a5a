// SPDX-License-Identifier: Apache-2.0
// Arrival: a signal when something is made in a folder, for a program that waits for signals only.
// The kernel's device files are made in /dev when a module is loaded.
#pragma once

#include <string>
#include <utility>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

class Arrival {
 public:
  // From now on every file made in the folder of `path` sends `signal` to the calling process.
  // Error: inotify's, also when there is no such folder.
  static Result<Arrival> watch(const std::string& path, int signal);

  // After the signal: without it no further one comes.
  void drain();

 private:
  explicit Arrival(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
};

}  // namespace gpushare
