// SPDX-License-Identifier: Apache-2.0
#include "tests/support/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gpushare {
namespace {

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string one = *each;
    const std::string name = one.substr(0, one.find('='));
    bool is_replaced = false;
    for (const auto& [key, value] : added) is_replaced |= key == name;
    if (!is_replaced) all.push_back(one);
  }
  for (const auto& [key, value] : added) all.push_back(key + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> found;
  for (std::string& word : words) found.push_back(word.data());
  found.push_back(nullptr);
  return found;
}

}  // namespace

Result<Child> Child::start(const ChildPlan& plan) {
  std::vector<std::string> words = plan.words, variables = environment_with(plan.environment);
  const std::vector<char*> argv = pointers(words), envp = pointers(variables);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("make a pipe");
  Fd reader(ends[0]), writer(ends[1]);
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  const Fd log(::open(plan.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  const pid_t self = ::getpid(), pid = ::fork();
  if (pid < 0) return errno_error("start a program", words[0]);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, plan.signal_at_our_end);
    if (::getppid() != self) ::_exit(127);
    ::dup2(writer.get(), STDOUT_FILENO);
    if (log.is_open()) ::dup2(log.get(), STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  return Child(pid, std::move(reader));
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      text_(std::move(other.text_)),
      status_(other.status_) {}

Child::~Child() { kill(); }

void Child::pump() {
  char part[65536];
  while (output_.is_open()) {
    const ssize_t got = ::read(output_.get(), part, sizeof(part));
    if (got < 0) break;
    if (got == 0) output_.reset();
    text_.append(part, static_cast<size_t>(got));
  }
  if (pid_ <= 0) return;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  pid_ = -1;
  pump();
}

std::string Child::last_line() const {
  const size_t end = text_.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const size_t before = text_.rfind('\n', end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return text_.substr(begin, end + 1 - begin);
}

void Child::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

void Child::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  status_ = 128 + SIGKILL;
}

}  // namespace gpushare
