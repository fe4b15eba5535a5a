// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/workload.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

namespace gpushare {

std::string build_folder() {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path().parent_path().parent_path().string();
}

Result<Workload> Workload::start(const std::string& name,
                                 const std::vector<std::string>& arguments) {
  const std::string path = build_folder() + "/bin/workloads/" + name;
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("make a pipe");
  Fd reader(ends[0]), writer(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("start a workload", name);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(writer.get(), STDOUT_FILENO);
    ::execv(path.c_str(), argv.data());
    ::_exit(127);
  }
  return Workload(pid, std::move(reader));
}

Workload::Workload(Workload&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      text_(std::move(other.text_)) {}

Workload& Workload::operator=(Workload&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(output_, other.output_);
  std::swap(text_, other.text_);
  return *this;
}

Workload::~Workload() { kill(); }

void Workload::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool Workload::read_some(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  const auto left =
      std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  pollfd waiting{output_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return false;
  char buffer[65536];
  const ssize_t got = ::read(output_.get(), buffer, sizeof(buffer));
  if (got <= 0) return false;
  text_.append(buffer, static_cast<size_t>(got));
  return true;
}

bool Workload::wait_for(const std::string& text, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (text_.find(text) == std::string::npos)
    if (!read_some(deadline)) return false;
  return true;
}

uint64_t Workload::last_number(const std::string& name) {
  while (read_some(std::chrono::steady_clock::now() + std::chrono::milliseconds(2))) {
  }
  const std::string key = "\"" + name + "\":";
  const size_t at = text_.rfind(key);
  return at == std::string::npos ? 0 : std::strtoull(text_.c_str() + at + key.size(), nullptr, 10);
}

Result<std::string> Workload::finish(std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (read_some(deadline)) {
  }
  if (std::chrono::steady_clock::now() >= deadline) {
    kill();
    return make_error(std::errc::timed_out, "wait for a workload");
  }
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return make_error(std::errc::io_error, "run a workload",
                      "it ended with status " + std::to_string(status));
  return text_;
}

}  // namespace gpushare
