// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/support/run_tool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace gpushare {

// The tests lie in bin/tests, the programs in bin.
Child start_tool(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment) {
  const std::string built = std::filesystem::path(own_folder()).parent_path() / program;
  std::vector<std::string> command{::access(built.c_str(), X_OK) == 0 ? built : program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const char* path = std::getenv("PATH");
  std::vector<std::string> whole = environment;  // of two equal names the first counts
  whole.insert(whole.end(), {std::string("PATH=") + (path == nullptr ? "/usr/bin:/bin" : path),
                             "HOME=/nonexistent", "GPUSHARE_SOCKET=/nonexistent/agent.sock",
                             "GPUSHARE_REGION=/gpushare-test-none"});
  auto child = Child::start({.command = std::move(command),
                             .environment = std::move(whole),
                             .is_environment_whole = true});
  if (!child) throw std::runtime_error(child.error().message());
  return std::move(*child);
}

ToolResult result_of(Child& tool) {
  const auto status = tool.finish(std::chrono::minutes(10));
  if (!status) ADD_FAILURE() << status.error().message();
  return {.exit_code = status && *status < 128 ? *status : -1,
          .out = tool.output(),
          .err = tool.errors(),
          .pid = tool.pid()};
}

ToolResult run_tool(const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment) {
  Child tool = start_tool(program, arguments, environment);
  return result_of(tool);
}

bool has_program(const std::string& name) {
  return run_tool("sh", {"-c", "command -v " + name}).exit_code == 0;
}

}  // namespace gpushare
