// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/shim/shim_rig.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace gpushare::test {
namespace {

using namespace std::chrono_literals;

std::string contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> all;
  for (const std::string& each : strings) all.push_back(const_cast<char*>(each.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

std::string build_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path();
}

Program::Program(const std::vector<std::string>& command,
                 const std::vector<std::string>& environment) {
  std::string pattern = (std::filesystem::temp_directory_path() / "gs-shim-out-XXXXXX").string();
  const int out = ::mkstemp(pattern.data());
  out_path_ = pattern;
  err_path_ = pattern + ".err";
  const int err = ::open(err_path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, out, 1);
  ::posix_spawn_file_actions_adddup2(&actions, err, 2);
  if (out > 2) ::posix_spawn_file_actions_addclose(&actions, out);
  const int failure = ::posix_spawnp(&pid_, command[0].c_str(), &actions, nullptr,
                                     pointers(command).data(), pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(out);
  ::close(err);
  if (failure != 0) {
    ADD_FAILURE() << command[0] << ": " << std::strerror(failure);
    is_reaped_ = true;
  }
}

Program::~Program() {
  if (!is_reaped_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::unlink(out_path_.c_str());
  ::unlink(err_path_.c_str());
}

bool Program::has_ended() {
  if (!is_reaped_) is_reaped_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return is_reaped_;
}

Outcome Program::wait() {
  if (!is_reaped_) {
    ::waitpid(pid_, &status_, 0);
    is_reaped_ = true;
  }
  const int status = WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  return {status, contents(out_path_), contents(err_path_)};
}

Outcome Program::succeed() {
  Outcome outcome = wait();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome;
}

ShimRig::ShimRig(uint32_t features, std::vector<ShimRequest::Gpu> gpus)
    : features_(features), gpus_(std::move(gpus)) {
  std::string pattern = (std::filesystem::temp_directory_path() / "gs-shim-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  folder_ = pattern;
  socket_ = folder_ + "/shim.sock";
  come_back();
  thread_ = std::thread([this] { serve(); });
}

ShimRig::~ShimRig() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  thread_.join();
  host_.reset();
  dead_.reset();
  std::filesystem::remove_all(folder_);
}

void ShimRig::come_back() {
  auto host = ShimHost::listen(socket_, [this](const ProcessId& process, uid_t) {
    note_launches();
    launches_.try_emplace(process, 0);
    return ShimRequest{.features = features_, .gpus = gpus_, .mps_pipe = mps_pipe};
  });
  if (!host) {
    ADD_FAILURE() << host.error().message();
    return;
  }
  const std::lock_guard lock(mutex_);
  host_ = std::move(*host);
}

void ShimRig::die() {
  const std::lock_guard lock(mutex_);
  dead_ = std::move(host_);
  std::filesystem::remove(socket_);
}

void ShimRig::hang() {
  const std::lock_guard lock(mutex_);
  dead_ = std::move(host_);
}

bool ShimRig::is_asked_in_vain() {
  const std::lock_guard lock(mutex_);
  pollfd asked{dead_->fd(), POLLIN, 0};
  return ::poll(&asked, 1, 0) == 1;
}

void ShimRig::go_on() {
  const std::lock_guard lock(mutex_);
  host_ = std::move(dead_);
}

void ShimRig::serve() {
  while (true) {
    int fd = -1;
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_) return;
      if (host_) {
        host_->serve();
        note_launches();  // beat() forgets those that have ended
        host_->beat(MonotonicClock().now());
        fd = host_->fd();
      }
    }
    pollfd waiting{fd, POLLIN, 0};
    ::poll(&waiting, 1, 2);
  }
}

// REQUIRES: mutex_ is held.
void ShimRig::note_launches() {
  if (!host_) return;
  for (const ProcessId& process : host_->processes())
    launches_[process] = std::max(launches_[process], launches_of(*host_->find(process)));
}

std::map<ProcessId, uint64_t> ShimRig::launches() {
  const std::lock_guard lock(mutex_);
  note_launches();
  return launches_;
}

uint64_t ShimRig::launches_of_all() {
  uint64_t sum = 0;
  for (const auto& [process, count] : launches()) sum += count;
  return sum;
}

bool ShimRig::launches_beyond(uint64_t count) {
  return eventually([&] { return launches_of_all() > count; });
}

bool ShimRig::with_slot(pid_t pid, const std::function<void(ShimSlot&)>& use) {
  const std::lock_guard lock(mutex_);
  for (const auto* host : {host_.get(), dead_.get()}) {
    if (host == nullptr) continue;
    for (const ProcessId& process : host->processes()) {
      if (process.pid != pid) continue;
      use(*host->find(process));
      return true;
    }
  }
  return false;
}

void ShimRig::with_all_slots(const std::function<void(ShimSlot&)>& use) {
  const std::lock_guard lock(mutex_);
  if (!host_) return;
  for (const ProcessId& process : host_->processes()) use(*host_->find(process));
}

bool ShimRig::eventually(const std::function<bool()>& is_so) {
  for (int i = 0; i < 5000; ++i) {
    if (is_so()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return false;
}

std::vector<std::string> ShimRig::environment() const {
  return {"LD_PRELOAD=" + build_folder() + "/lib/libgpushare.so",
          "LD_LIBRARY_PATH=" + build_folder() + "/lib/fake", "GPUSHARE_SHIM_SOCKET=" + socket_};
}

std::unique_ptr<Program> ShimRig::start(const std::string& name,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> command{build_folder() + "/bin/tests/" + name};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return std::make_unique<Program>(command, environment());
}

Outcome ShimRig::run(const std::string& name, const std::vector<std::string>& arguments) {
  return start(name, arguments)->wait();
}

Outcome ShimRig::succeed(const std::string& name, const std::vector<std::string>& arguments) {
  return start(name, arguments)->succeed();
}

}  // namespace gpushare::test
