// SPDX-License-Identifier: Apache-2.0
// Starts a built program as a user would.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "shmctl/program/child.h"

namespace gpushare {

struct ToolResult {
  int exit_code = -1;  // -1: it did not exit by itself
  std::string out;
  std::string err;
  pid_t pid = 0;
};

// `program` is a name in the folder of the built programs, or in PATH. `environment` is added to a
// small fixed one. The test fails if the program does not end within ten minutes.
ToolResult run_tool(const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment = {});

// The same in two steps, for what a test does in between. Throws when the program does not start.
Child start_tool(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment = {});
ToolResult result_of(Child& tool);

// Returns whether there is a program of this name in PATH.
bool has_program(const std::string& name);

}  // namespace gpushare
