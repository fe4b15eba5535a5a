// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/command_run.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "shmctl/program/child.h"

namespace gpushare {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

// Listening sockets and locks are among the descriptors, which must not live on in a daemon.
void close_all_else(posix_spawn_file_actions_t& files) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (fd > 2) posix_spawn_file_actions_addclose(&files, fd);
  }
}

}  // namespace

std::string read_whole(const Fd& file) {
  std::string text;
  char part[4096];
  ssize_t n = 0;
  while (text.size() < kMostBytes && (n = ::read(file.get(), part, sizeof part)) > 0)
    text.append(part, static_cast<std::size_t>(n));
  return text;
}

CommandRun::~CommandRun() {
  if (pid_ != 0) kill();
  reap();
}

void CommandRun::kill() {
  ::kill(pid_, SIGKILL);
  killed_.push_back(std::exchange(pid_, 0));
}

void CommandRun::reap() {
  std::erase_if(killed_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

Result<> CommandRun::start(const char* step, std::vector<std::string> words,
                           std::vector<std::string> environment, const std::string& input) {
  const Fd commands(::memfd_create("gpushare-mps-in", MFD_CLOEXEC));
  output_.reset(::memfd_create("gpushare-mps-out", MFD_CLOEXEC));
  if (!commands.is_open() || !output_.is_open()) return errno_error(step);
  if (::pwrite(commands.get(), input.data(), input.size(), 0) != static_cast<ssize_t>(input.size()))
    return errno_error(step);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, commands.get(), 0);
  posix_spawn_file_actions_adddup2(&files, output_.get(), 1);
  posix_spawn_file_actions_adddup2(&files, output_.get(), 2);
  close_all_else(files);
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // In a session of its own it does not get the signals of our terminal.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  const int error = ::posix_spawnp(&pid_, words.front().c_str(), &files, &attributes,
                                   exec_pointers(words).data(), exec_pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  step_ = step;
  began_.reset();
  if (error == 0) return {};
  pid_ = 0;
  return make_error(static_cast<std::errc>(error), step, words.front());
}

std::optional<Result<std::string>> CommandRun::finished(Time now, Nanos patience) {
  reap();
  if (pid_ == 0) return std::nullopt;
  if (!began_) began_ = now;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) {
    if (now - *began_ < patience) return std::nullopt;
    kill();
    return make_error(std::errc::timed_out, step_, name_);
  }
  pid_ = 0;
  ::lseek(output_.get(), 0, SEEK_SET);
  std::string text = read_whole(output_);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return make_error(std::errc::io_error, step_, name_ + " said: " + text);
}

}  // namespace gpushare
