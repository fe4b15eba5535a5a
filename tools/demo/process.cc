// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string_view>
#include <thread>

#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

constexpr size_t kTailLines = 8;

std::vector<std::string> changed_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> result;
  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const auto is_same = [&](const std::string& change) {
      return name_of(change) == name_of(*entry);
    };
    if (std::ranges::none_of(changes, is_same)) result.emplace_back(*entry);
  }
  for (const std::string& change : changes)
    if (change.find('=') != std::string::npos) result.push_back(change);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

// Between fork and exec: only calls that are safe there.
[[noreturn]] void become(char** arguments, char** environment, int output, pid_t parent) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);  // it died before that
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  const int input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::execve(arguments[0], arguments, environment);
  constexpr std::string_view kMessage = "the program could not be started\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  ::_exit(127);
}

}  // namespace

Result<DemoProcess> DemoProcess::start(Launch launch) {
  constexpr const char* kStep = "start a program";
  if (::access(launch.command[0].c_str(), X_OK) != 0) return errno_error(kStep, launch.command[0]);
  const Fd output(::open(launch.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!output.is_open()) return errno_error(kStep, launch.log);
  std::vector<std::string> environment = changed_environment(launch.environment);
  const std::vector<char*> arguments = pointers(launch.command), variables = pointers(environment);
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0)
    become(const_cast<char**>(arguments.data()), const_cast<char**>(variables.data()), output.get(),
           self);
  if (pid < 0) return errno_error(kStep, launch.command[0]);
  return DemoProcess(std::move(launch), pid);
}

DemoProcess::DemoProcess(DemoProcess&& other) noexcept
    : launch_(std::move(other.launch_)),
      pid_(std::exchange(other.pid_, -1)),
      status_(other.status_) {}

DemoProcess::~DemoProcess() { stop(); }

bool DemoProcess::has_ended() {
  if (pid_ < 0 || status_) return true;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_.has_value();
}

void DemoProcess::stop(Nanos patience) {
  if (has_ended()) return;
  ::kill(pid_, SIGTERM);
  const Time deadline = MonotonicClock().now() + patience;
  while (!has_ended() && MonotonicClock().now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (has_ended()) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  status_ = status;
}

bool DemoProcess::has_succeeded() const {
  return status_ && WIFEXITED(*status_) && WEXITSTATUS(*status_) == 0;
}

Error DemoProcess::failure(const char* step) const {
  const int status = status_.value_or(0);
  return failure(step, WIFSIGNALED(status)
                           ? fmt::format("{} was killed by signal {}", name(), WTERMSIG(status))
                           : fmt::format("{} ended with status {}", name(), WEXITSTATUS(status)));
}

Error DemoProcess::failure(const char* step, const std::string& what) const {
  const std::vector<std::string> lines = lines_of(launch_.log);
  std::string detail = what;
  detail += lines.empty() ? "; it printed nothing" : "; the end of its output:";
  for (size_t i = lines.size() - std::min(lines.size(), kTailLines); i < lines.size(); ++i)
    detail += "\n    " + lines[i];
  return {.code = {}, .step = step, .detail = std::move(detail)};
}

std::string DemoProcess::last_line() const {
  const std::vector<std::string> lines = lines_of(launch_.log);
  return lines.empty() ? std::string() : lines.back();
}

}  // namespace gpushare
