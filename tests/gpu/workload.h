// SPDX-License-Identifier: Apache-2.0
// A workload program as a child process: started, read, ended. For tests and benches that need real
// programs on a GPU. The child dies with us.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

class Workload {
 public:
  // `name`: a program of bin/workloads beside this binary's bin/.
  static Result<Workload> start(const std::string& name, const std::vector<std::string>& arguments);
  Workload(Workload&& other) noexcept;
  Workload& operator=(Workload&& other) noexcept;
  ~Workload();  // SIGKILL, reaped

  pid_t pid() const { return pid_; }
  // All it wrote to standard output, after it ended by itself; error when it failed or outlasted
  // `limit` (it is then killed).
  Result<std::string> finish(std::chrono::seconds limit);
  // Blocks until it has written a line that contains `text`; false at end of output or `limit`.
  bool wait_for(const std::string& text, std::chrono::seconds limit);
  // The newest value of a number in its JSON lines so far; 0 when there is none.
  uint64_t last_number(const std::string& name);
  void kill();

 private:
  Workload(pid_t pid, Fd output) : pid_(pid), output_(std::move(output)) {}
  // Reads what is there, waiting at most until `deadline`; false at the end.
  bool read_some(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  Fd output_;
  std::string text_;
};

// The folder that holds bin/: two levels above this program.
std::string build_folder();

}  // namespace gpushare
