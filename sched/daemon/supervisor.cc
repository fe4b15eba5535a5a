// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/supervisor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "intercept/kmod/calls.h"
#include "sched/daemon/backend.h"
#include "sched/daemon/file_watch.h"
#include "sched/daemon/lifeline.h"
#include "sched/daemon/stall_watch.h"
#include "sched/module/kernel_module.h"
#include "sched/step/recovery.h"
#include "sched/tenants/proc_reader.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/region.h"

namespace gpushare {
namespace {

constexpr Nanos kYoung{250'000'000};  // dying earlier than this is dying at once
constexpr Nanos kLongestPause{5'000'000'000};
constexpr Nanos kFirstPause{100'000'000};
constexpr Nanos kLookAgain = StuckWatch::kBetween;  // for GPUs, too, while there are none
constexpr int kAgentDies = SIGUSR1;                 // the lifeline's signal
constexpr int kFileCame = SIGUSR2;                  // the arrival's signal
constexpr int kHandOver = SIGUSR1;                  // to the agent
constexpr Nanos kToStop{5'000'000'000};             // for an agent that was asked to

class Supervisor {
 public:
  Supervisor(const AgentOptions& options, std::vector<std::string> arguments, ControlPlane plane)
      : options_(options), arguments_(std::move(arguments)), plane_(std::move(plane)) {}

  int run();

 private:
  bool start_agent();
  int wait_for_signal(Time until);
  void take_the_module();
  bool lacks_the_module() const { return module_ == nullptr && !options_.module.device.empty(); }
  void wait_for_the_module();
  void take_the_late_module();
  void ask_agent(int signal);
  void end_stuck_agent();
  void look_for_gpu();
  void undo();
  Nanos pause_after_death();

  const AgentOptions options_;
  const std::vector<std::string> arguments_;
  const MonotonicClock clock_;
  const SystemProcReader processes_;
  ControlPlane plane_;
  std::unique_ptr<kmod::Device> module_;  // nullptr: not loaded, or not to be had
  std::string module_error_;              // the last in the log
  std::optional<Arrival> arrival_;        // while there is no module
  std::unique_ptr<Gpu> gpu_;
  sigset_t handled_{}, before_{};
  pid_t agent_ = 0;  // 0: none
  StuckWatch stuck_watch_;
  pid_t stuck_ = 0;                     // the last one that was
  std::unique_ptr<Lifeline> lifeline_;  // of the present agent; nullptr: its death is seen late
  Time started_{};
  Nanos pause_{};
  uint64_t starts_ = 0;
  bool is_handing_over_ = false;  // the agent was asked to make way for one with the module
  Time kill_at_ = Time::max();    // for an agent that was asked to end
};

// Between fork and exec only calls that are safe there.
bool Supervisor::start_agent() {
  std::vector<std::string> words = arguments_;
  words.push_back(fmt::format("--supervisor-pid={}", ::getpid()));
  words.push_back(fmt::format("--restarts={}", starts_));
  if (module_ == nullptr) take_the_module();
  if (module_ != nullptr) words.push_back(fmt::format("--module-fd={}", module_->fd()));
  lifeline_.reset();
  if (auto lifeline = Lifeline::create(kAgentDies)) {
    lifeline_ = std::move(*lifeline);
    words.push_back(fmt::format("--lifeline-fd={}", lifeline_->fd()));
  } else {
    log_warning("{}", lifeline.error().message());
  }
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t self = ::getpid();
  const int kept_fd = lifeline_ == nullptr ? -1 : lifeline_->fd();
  const int module_fd = module_ == nullptr ? -1 : module_->fd();
  started_ = clock_.now();
  agent_ = ::fork();
  if (agent_ == 0) {
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != self) ::_exit(1);  // it died before that
    if (kept_fd >= 0) Lifeline::keep_for_child(kept_fd);
    if (module_fd >= 0) ::fcntl(module_fd, F_SETFD, 0);
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }
  if (agent_ < 0) {
    agent_ = 0;
    log_error("the agent was not started: {}", errno_error("fork").error().message());
    return false;
  }
  ++starts_;
  return true;
}

// The next signal, or 0 at `until`.
int Supervisor::wait_for_signal(Time until) {
  while (true) {
    siginfo_t info{};
    int signal = -1;
    if (until == Time::max()) {
      signal = ::sigwaitinfo(&handled_, &info);
    } else {
      const Nanos left = std::max(until - clock_.now(), Nanos{});
      const timespec wait{.tv_sec = left.count() / 1'000'000'000,
                          .tv_nsec = left.count() % 1'000'000'000};
      signal = ::sigtimedwait(&handled_, &info, &wait);
      if (signal < 0 && errno == EAGAIN) return 0;
    }
    if (signal > 0) return signal;
  }
}

// With the kernel module loaded, only who is registered with it may freeze, thaw and set slices.
void Supervisor::take_the_module() {
  if (options_.module.device.empty()) return;
  Result<> taken;
  if (module_ != nullptr) {
    taken = kmod::register_agent(*module_);
  } else if (auto opened = open_module(options_.module.device)) {
    module_ = std::move(*opened);
  } else if (opened.error().code != std::errc::no_such_file_or_directory) {
    taken = std::unexpected(opened.error());
  }
  const std::string error = taken ? "" : taken.error().message();
  if (error != std::exchange(module_error_, error) && !taken) log_warning("{}", error);
}

// It may be loaded at any time. The arrival's signal is the fast way, looking now and then the sure
// one.
void Supervisor::wait_for_the_module() {
  if (!lacks_the_module()) return;
  auto arrival = Arrival::watch(options_.module.device, kFileCame);
  if (!arrival) return log_warning("{}", arrival.error().message());
  arrival_ = std::move(*arrival);
}

// The agent has been running without it. What it froze must be thawed while it may do so: from here
// on it may, as our child.
void Supervisor::take_the_late_module() {
  if (!lacks_the_module()) return;
  if (arrival_) arrival_->drain();
  take_the_module();
  if (module_ == nullptr) return;
  arrival_.reset();
  if (agent_ == 0) return;
  log_info("the kernel module has come: the agent starts again with it");
  is_handing_over_ = true;
  ask_agent(kHandOver);
}

void Supervisor::ask_agent(int signal) {
  if (kill_at_ == Time::max()) kill_at_ = clock_.now() + kToStop;
  ::kill(agent_, signal);
}

// Its death thaws what it holds, and the next one goes on.
void Supervisor::end_stuck_agent() {
  if (agent_ == 0 || agent_ == stuck_) return;
  const uint32_t held = stuck_watch_.look(plane_.region(), agent_, clock_.now());
  if (held == 0) return;
  stuck_ = agent_;
  log_error("the agent does nothing any more, and keeps {} frozen: it is killed",
            held == 1 ? std::string("one channel group") : fmt::format("{} channel groups", held));
  ::kill(agent_, SIGKILL);
}

void Supervisor::look_for_gpu() {
  if (gpu_ != nullptr) return;
  if (auto gpu = open_gpu(options_.simulation)) gpu_ = std::move(*gpu);
}

void Supervisor::undo() {
  take_the_module();
  look_for_gpu();
  if (gpu_ == nullptr) return;
  RecoveryReport report = recover(*gpu_, plane_.region(), processes_);
  if (!report.errors.empty()) {
    // The way to the GPUs may itself be what broke.
    gpu_.reset();
    look_for_gpu();
    if (gpu_ == nullptr) return;
    report = recover(*gpu_, plane_.region(), processes_);
  }
  for (const ProcessId& process : report.thawed) log_warning("process {} thawed", process.pid);
  if (report.slices_restored > 0) log_warning("{} slices restored", report.slices_restored);
  for (const std::string& error : report.errors) log_error("recovery: {}", error);
}

Nanos Supervisor::pause_after_death() {
  if (clock_.now() - started_ > kYoung) {
    pause_ = Nanos{};
  } else {
    pause_ = pause_ == Nanos{} ? kFirstPause : std::min(2 * pause_, kLongestPause);
  }
  return pause_;
}

int Supervisor::run() {
  sigemptyset(&handled_);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD, kAgentDies, kFileCame})
    sigaddset(&handled_, signal);
  ::sigprocmask(SIG_BLOCK, &handled_, &before_);
  wait_for_the_module();
  take_the_late_module();
  look_for_gpu();

  Time start_at = clock_.now();
  bool is_stopping = false;
  while (true) {
    const Time now = clock_.now();
    if (agent_ == 0 && !is_stopping && now >= start_at && !start_agent())
      start_at = now + kLongestPause;
    Time until = std::min(kill_at_, now + kLookAgain);
    if (agent_ == 0) until = std::min(until, start_at);

    const int signal = wait_for_signal(until);
    if (signal == 0) look_for_gpu();
    if ((signal == 0 || signal == kFileCame) && !is_stopping) take_the_late_module();
    if (signal == kAgentDies) undo();  // once more when it is gone: see below
    if (signal == SIGHUP && agent_ != 0) ::kill(agent_, SIGHUP);
    if (signal == SIGTERM || signal == SIGINT) {
      if (agent_ == 0) return 0;
      is_stopping = true;
      ask_agent(SIGTERM);
    }
    end_stuck_agent();
    if (agent_ != 0 && clock_.now() >= kill_at_) {
      kill_at_ = Time::max();
      ::kill(agent_, SIGKILL);
    }

    int status = 0;
    if (agent_ == 0 || ::waitpid(agent_, &status, WNOHANG) != agent_) continue;
    agent_ = 0;
    kill_at_ = Time::max();
    lifeline_.reset();
    undo();
    if (is_stopping) return 0;
    if (std::exchange(is_handing_over_, false)) {
      start_at = clock_.now();
      continue;
    }
    const bool could_not_start = WIFEXITED(status) && WEXITSTATUS(status) != 0 && starts_ == 1 &&
                                 clock_.now() - started_ < kYoung;
    if (could_not_start) return WEXITSTATUS(status);  // it has said why
    const Nanos pause = pause_after_death();
    start_at = clock_.now() + pause;
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("was ended by signal {}", WTERMSIG(status))
                                : fmt::format("ended with code {}", WEXITSTATUS(status));
    if (pause == Nanos{}) {
      log_error("the agent {}; starting it again", how);
    } else {
      log_error("the agent {}; starting it again in {} ms", how, pause.count() / 1'000'000);
    }
  }
}

}  // namespace

int run_supervisor(const AgentOptions& options, const std::vector<std::string>& arguments) {
  auto plane = ControlPlane::create(options.region);
  if (!plane) {
    log_error("{}", plane.error().message());
    return 1;
  }
  return Supervisor(options, arguments, std::move(*plane)).run();
}

}  // namespace gpushare
