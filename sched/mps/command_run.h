// SPDX-License-Identifier: Apache-2.0
// CommandRun: runs a program as a child process, one run at a time, with its input and output in
// memory. It never waits for a child, also not for one that it has killed: such a child may be
// inside the driver for long, and is reaped by a later call. Called on the agent's thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

// What can be read from `file` from where it stands, at most 1 MiB.
std::string read_whole(const Fd& file);

class CommandRun {
 public:
  // `name`: what errors call the program.
  explicit CommandRun(std::string name) : name_(std::move(name)) {}
  CommandRun(const CommandRun&) = delete;
  CommandRun& operator=(const CommandRun&) = delete;
  ~CommandRun();  // kills a run that is under way

  // REQUIRES: no run is under way. Runs words[0], which is looked for in $PATH, in a session of its
  // own and with no descriptors but its input and output. `step` names the attempt in errors, and
  // outlives the run. Errors: those of memfd_create() and posix_spawnp().
  Result<> start(const char* step, std::vector<std::string> words,
                 std::vector<std::string> environment, const std::string& input);

  // What the program wrote to its output and error output; once. nullopt: no run is under way, or
  // it goes on. Errors: timed_out when it is not over `patience` after the first call, and is
  // killed; io_error when its exit code is not 0, with what it wrote.
  std::optional<Result<std::string>> finished(Time now, Nanos patience);

 private:
  void kill();
  void reap();

  const std::string name_;
  pid_t pid_ = 0;              // 0: no run is under way
  std::vector<pid_t> killed_;  // and not reaped yet
  const char* step_ = "";
  Fd output_;
  std::optional<Time> began_;  // the first call of finished()
};

}  // namespace gpushare
