// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/agent_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "shmctl/base/last_threads.h"
#include "shmctl/base/log.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kToStop = 5s;

}  // namespace

Result<> AgentProcess::start(int module_fd, const std::string& left, const sigset_t& signals,
                             Time now) {
  const pid_t self = ::getpid();
  std::vector<std::string> words = arguments_;
  words.push_back(fmt::format("--supervisor-pid={}", self));
  words.push_back(fmt::format("--restarts={}", starts_));
  if (module_fd >= 0) words.push_back(fmt::format("--module-fd={}", module_fd));
  if (!left.empty()) words.push_back("--left=" + left);
  lifeline_.reset();
  if (auto lifeline = Lifeline::create(death_signal_)) {
    lifeline_ = std::move(*lifeline);
    words.push_back(fmt::format("--lifeline-fd={}", lifeline_->fd()));
  } else {
    log_warning("{}", lifeline.error().message());
  }
  slots_.reset();
  if (auto slots = SlotKeeper::start()) {
    slots_ = std::move(*slots);
    words.push_back(fmt::format("--slots-fd={}", slots_->agents_end()));
  } else {
    log_warning("{}", slots.error().message());
  }
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const int lifeline_fd = lifeline_ == nullptr ? -1 : lifeline_->fd();
  const int slots_fd = slots_ == nullptr ? -1 : slots_->agents_end();
  started_ = now;
  pid_ = ::fork();
  if (pid_ == 0) {
    // Between fork and exec only async-signal-safe calls are allowed: there are threads.
    ::sigprocmask(SIG_SETMASK, &signals, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != self) ::_exit(1);  // the supervisor died before prctl() took effect
    if (lifeline_fd >= 0) Lifeline::keep_for_child(lifeline_fd);
    if (module_fd >= 0) ::fcntl(module_fd, F_SETFD, 0);
    if (slots_fd >= 0) ::fcntl(slots_fd, F_SETFD, 0);
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }
  if (pid_ < 0) {
    pid_ = 0;
    return errno_error("fork");
  }
  if (slots_ != nullptr) slots_->close_agents_end();
  ++starts_;
  return {};
}

void AgentProcess::ask_to_end(int signal, Time now) {
  if (kill_at_ == Time::max()) kill_at_ = now + kToStop;
  send(signal);
}

void AgentProcess::kill_if_overdue(Time now) {
  if (!is_running() || now < kill_at_) return;
  kill_at_ = Time::max();
  kill();
}

std::optional<ProcessId> AgentProcess::leave(Time now) {
  const ProcessId agent{pid_, is_running() ? start_ticks_of(pid_) : 0};
  if (agent.start_ticks == 0 || !has_died(agent)) {  // 0: there is none, or it cannot be read now
    dead_since_.reset();
    return std::nullopt;
  }
  if (!dead_since_) dead_since_ = now;
  if (now < *dead_since_ + kToEnd) return std::nullopt;
  left_.push_back(pid_);
  forget();
  return agent;
}

std::optional<int> AgentProcess::reap() {
  int status = 0;
  std::erase_if(left_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
  if (!is_running() || ::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  forget();
  return status;
}

void AgentProcess::forget() {
  pid_ = 0;
  kill_at_ = Time::max();
  dead_since_.reset();
  lifeline_.reset();
}

}  // namespace gpushare
