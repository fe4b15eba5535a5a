// SPDX-License-Identifier: Apache-2.0
// Child: a program that this one starts, waits for and stops. The demo, the benchmarks and the
// tests all use it. What the program writes is kept and can be read at any time; when something
// goes wrong its last lines are in the error. Should we be killed, the system ends the program.
// Each Child is used by the thread that started it, and ends with that thread.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "shmctl/program/wait.h"

namespace gpushare {

// The words as execve(2) and posix_spawn(3) take them: pointers to them, and a null pointer. Valid
// for as long as `words` is not changed.
std::vector<char*> exec_pointers(std::vector<std::string>& words);

struct Launch {
  std::vector<std::string> command{};      // the program, by its path or found in PATH; arguments
  std::vector<std::string> environment{};  // NAME=VALUE, added to ours; NAME alone takes it away
  bool is_environment_whole = false;       // the program gets nothing of ours
  std::string name{};                      // for messages; if empty, the program's file name
  // The file to which all that it writes is added. If empty, it is kept in memory.
  std::string log{};
  // All that it writes goes to our standard error, and it reads our standard input.
  bool is_shown = false;
  // With is_shown: what it writes to its standard output goes to ours.
  bool has_our_output = false;
  // In a process group of its own, Ctrl-C in the terminal does not reach the program.
  bool leads_group = false;
  // It stays a zombie until its Child goes, so that the number of its group is nobody else's.
  bool keeps_number = false;
  // With which it ends when its Child goes, and when we are killed.
  int end_signal = SIGKILL;
};

class Child {
 public:
  // Returns when the program runs. Error: it could not be started.
  static Result<Child> start(Launch launch);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();  // Sends end_signal, and SIGKILL when it has not ended 3 s later.

  const std::string& name() const { return launch_.name; }
  pid_t pid() const { return pid_; }
  bool has_ended() const;
  // The exit code, or 128 + the signal. Requires: has_ended() was true.
  int status() const { return *status_; }
  bool has_succeeded() const { return has_ended() && status() == 0; }

  // These do nothing to a program that has ended.
  void signal(int number) const;
  void kill();  // SIGKILL; returns when it has ended
  // Sends the signal, and SIGKILL when it has not ended within `patience`. Returns its status.
  int stop(Nanos patience = std::chrono::seconds(3), int number = SIGTERM);

  // Returns when the condition holds. Error: the program ended first, or `limit` was over; then it
  // names `what` was waited for.
  Result<> await(std::string_view what, const std::function<bool()>& is_so, Nanos limit,
                 Wait* wait = nullptr) const;
  // Returns its status. Error: it had not ended when `limit` was over, and has been killed.
  Result<int> finish(Nanos limit = std::chrono::seconds(60));

  // What it has written to standard output and to standard error; both are the same with a log.
  std::string output() const { return text_of(output_); }
  std::string errors() const { return text_of(errors_); }
  std::string last_line() const;  // of its output; empty if there is none

  // "NAME ended with status 1", or WHAT, and the last lines that it wrote.
  Error failure(const char* step) const;
  Error failure(const char* step, const std::string& what) const;

 private:
  Child(Launch launch, Fd output, Fd errors);
  std::string text_of(const Fd& file) const;
  void look(int flags) const;  // whether it has ended, with flags of waitid()

  Launch launch_;
  Fd output_, errors_;  // files; closed when the output is shown
  off_t begin_ = 0;     // where its own output begins in a log
  pid_t pid_ = -1;      // -1: moved from, or never started
  mutable std::optional<int> status_;
};

// The folder in which the running program lies.
std::string own_folder();

}  // namespace gpushare
