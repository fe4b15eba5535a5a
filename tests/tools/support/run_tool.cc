// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/support/run_tool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/tools/support/temp_dir.h"

namespace gpushare {
namespace {

// The tests lie in bin/tests, the programs in bin.
std::string find_program(const std::string& name) {
  const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  const auto built = bin / name;
  return ::access(built.c_str(), X_OK) == 0 ? built.string() : name;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (const std::string& text : strings) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

std::string temp_file() {
  std::string name = std::filesystem::temp_directory_path() / "gpushare-out-XXXXXX";
  const int fd = ::mkstemp(name.data());
  EXPECT_GE(fd, 0);
  ::close(fd);
  return name;
}

}  // namespace

RunningTool::RunningTool(const std::string& program, const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment)
    : out_file_(temp_file()), err_file_(temp_file()) {
  std::vector<std::string> argv{find_program(program)};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const char* path = std::getenv("PATH");
  std::vector<std::string> envp{std::string("PATH=") + (path == nullptr ? "/usr/bin:/bin" : path),
                                "HOME=/nonexistent", "GPUSHARE_SOCKET=/nonexistent/agent.sock",
                                "GPUSHARE_REGION=/gpushare-test-none"};
  // The first of two equal names counts.
  envp.insert(envp.begin(), environment.begin(), environment.end());
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_file_.c_str(), O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err_file_.c_str(), O_WRONLY, 0);
  const int failure = ::posix_spawnp(&pid_, argv[0].c_str(), &actions, nullptr,
                                     pointers(argv).data(), pointers(envp).data());
  ::posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(failure, 0) << "start " << argv[0];
  if (failure != 0) pid_ = -1;
}

RunningTool::~RunningTool() {
  if (pid_ > 0) wait();
  std::filesystem::remove(out_file_);
  std::filesystem::remove(err_file_);
}

void RunningTool::send(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

std::string RunningTool::err_so_far() const { return TempDir::read(err_file_); }

ToolResult RunningTool::wait() {
  ToolResult result;
  result.pid = pid_;
  int status = 0;
  if (pid_ > 0 && ::waitpid(pid_, &status, 0) == pid_ && WIFEXITED(status))
    result.exit_code = WEXITSTATUS(status);
  pid_ = -1;
  result.out = TempDir::read(out_file_);
  result.err = TempDir::read(err_file_);
  return result;
}

ToolResult run_tool(const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment) {
  return RunningTool(program, arguments, environment).wait();
}

bool has_program(const std::string& name) {
  return run_tool("sh", {"-c", "command -v " + name}).exit_code == 0;
}

}  // namespace gpushare
