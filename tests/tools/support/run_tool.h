// SPDX-License-Identifier: Apache-2.0
// Starts a built program as a user would.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpushare {

struct ToolResult {
  int exit_code = -1;  // -1: it did not exit by itself
  std::string out;
  std::string err;
  pid_t pid = 0;
};

// `program`: a name in the folder of the built programs, or in PATH. `environment` is added to a
// small fixed one. Output goes to files: no terminal.
ToolResult run_tool(const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment = {});

// The same in two steps, for signals in between.
class RunningTool {
 public:
  RunningTool(const std::string& program, const std::vector<std::string>& arguments,
              const std::vector<std::string>& environment = {});
  ~RunningTool();
  RunningTool(const RunningTool&) = delete;
  RunningTool& operator=(const RunningTool&) = delete;

  // -1: it did not start, or was waited for.
  pid_t pid() const { return pid_; }
  // Nothing to one that does not run: kill(-1) would reach every process there is.
  void send(int signal) const;
  std::string err_so_far() const;
  ToolResult wait();

 private:
  std::string out_file_, err_file_;
  pid_t pid_ = -1;
};

// Is there a program of this name in PATH?
bool has_program(const std::string& name);

}  // namespace gpushare
