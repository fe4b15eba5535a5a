// SPDX-License-Identifier: Apache-2.0
// A program that the demo starts: in a process group of its own, so that Ctrl-C in the terminal
// reaches the demo alone, which then stops everything in order; should the demo be killed, the
// system ends it. Output goes to a file. One thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"

namespace gpushare {

struct Launch {
  std::string name;                      // for messages
  std::vector<std::string> command;      // the program's path first
  std::vector<std::string> environment;  // NAME=VALUE, added to ours; NAME alone takes it away
  std::string log;                       // where stdout and stderr go
};

class DemoProcess {
 public:
  static Result<DemoProcess> start(Launch launch);
  DemoProcess(DemoProcess&& other) noexcept;
  DemoProcess& operator=(DemoProcess&&) = delete;
  ~DemoProcess();  // stop()

  const std::string& name() const { return launch_.name; }
  pid_t pid() const { return pid_; }
  bool has_ended();
  // SIGTERM, and SIGKILL when it has not ended within `patience`. Nothing when it has ended.
  void stop(Nanos patience = std::chrono::seconds(3));

  // Requires: has_ended().
  bool has_succeeded() const;
  // "NAME ended with status 1", "NAME was killed by signal 9", and the last lines of its output.
  Error failure(const char* step) const;
  // "STEP: WHAT", and the last lines of its output.
  Error failure(const char* step, const std::string& what) const;

  std::string last_line() const;  // of its output; empty if none

 private:
  DemoProcess(Launch launch, pid_t pid) : launch_(std::move(launch)), pid_(pid) {}

  Launch launch_;
  pid_t pid_ = -1;  // -1: moved from
  std::optional<int> status_;
};

}  // namespace gpushare
