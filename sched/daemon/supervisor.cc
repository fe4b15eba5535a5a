// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/supervisor.h"

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "intercept/kmod/calls.h"
#include "intercept/process_stop.h"
#include "sched/daemon/agent_process.h"
#include "sched/daemon/file_watch.h"
#include "sched/daemon/gpus/backend.h"
#include "sched/daemon/gpus/predecessors.h"
#include "sched/daemon/stall_watch.h"
#include "sched/daemon/undoing.h"
#include "sched/module/kernel_module.h"
#include "sched/tenants/proc_reader.h"
#include "sched/tenants/takeover.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/region.h"
#include "shmctl/program/command_line.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kYoung = 250ms;  // an agent that dies earlier than this has died young
// Before an agent is started again.
constexpr Nanos kFirstPause = 100ms, kLongestPause = 5s;
// How often the stall watch looks, and how often GPUs and the kernel module are looked for while
// there are none.
constexpr Nanos kLookAgain = StallWatch::kBetween;
constexpr int kAgentDies = SIGUSR1;   // sent by the lifeline to the supervisor
constexpr int kFileMade = SIGUSR2;    // sent by the file watch to the supervisor
constexpr int kUndoingTells = SIGIO;  // sent by the supervisor's own threads
constexpr int kHandOver = SIGUSR1;    // sent by the supervisor to the agent

// Of an agent that has ended by itself. `status`: that of wait(2).
bool has_said_that_it_could_not_start(int status) {
  const int code = WEXITSTATUS(status);
  return code > kCouldNotStart && code <= kCouldNotStart + kExitUsage;
}
bool could_not_start(int status) {
  return has_said_that_it_could_not_start(status) || WEXITSTATUS(status) == kExitNotFound;
}
int exit_code(int status) {
  return WEXITSTATUS(status) - (has_said_that_it_could_not_start(status) ? kCouldNotStart : 0);
}

Nanos next_pause(Nanos last) {
  return last == Nanos{} ? kFirstPause : std::min(2 * last, kLongestPause);
}

class Supervisor {
 public:
  Supervisor(const AgentOptions& options, const std::vector<std::string>& arguments,
             ControlPlane plane)
      : options_(options),
        plane_(std::move(plane)),
        agent_(arguments, kAgentDies),
        left_(options.left),
        undoing_(plane_.region(), processes_, clock_,
                 {.open = [simulation = options.simulation] { return list_gpus(simulation); },
                  .resume = resume_process,
                  .is_free = [this](uint32_t gpu) { return left_.have_left(gpu); },
                  .told = [] { ::kill(::getpid(), kUndoingTells); }}) {}

  int run();

 private:
  bool start_agent();
  int wait_for_signal(Time until);
  void take_the_module();
  bool lacks_the_module() const { return module_ == nullptr && !options_.module.device.empty(); }
  void wait_for_the_module();
  void take_the_late_module();
  void end_stalled_agent();
  void undo(Undoing::Writer writer);
  void go_on_with_undoing();
  void log_undone();
  int end();
  std::optional<int> leave_agent();
  void note_ending(pid_t agent, int status);
  std::optional<int> plan_restart(int status);

  const AgentOptions options_;
  const MonotonicClock clock_;
  const SystemProcReader processes_;
  ControlPlane plane_;
  AgentProcess agent_;
  Predecessors left_;
  std::unique_ptr<kmod::Device> module_;  // nullptr: not loaded, or it could not be opened
  std::string module_error_;              // the last one that was logged
  std::optional<FileWatch> file_watch_;   // while there is no module
  Undoing undoing_;
  sigset_t handled_{}, before_{};
  StallWatch stall_watch_;
  pid_t stalled_ = 0;             // the last agent that was killed because it had stalled
  Time start_at_{};               // when to start the next agent
  Nanos pause_{};                 // before it; zero when the last one lived long enough
  bool is_handing_over_ = false;  // the agent was asked to make way for one with the module
};

bool Supervisor::start_agent() {
  if (module_ == nullptr) take_the_module();
  const int module_fd = module_ == nullptr ? -1 : module_->fd();
  const auto started = agent_.start(module_fd, left_.text(), before_, clock_.now());
  if (!started) log_error("the agent was not started: {}", started.error().message());
  if (started) undoing_.call_off();  // what is left is the agent's
  return started.has_value();
}

// Returns the next signal, or 0 when `until` has passed.
int Supervisor::wait_for_signal(Time until) {
  while (true) {
    const Nanos left = std::max(until - clock_.now(), Nanos{});
    const timespec wait{.tv_sec = left / 1s, .tv_nsec = (left % 1s).count()};
    const int signal = ::sigtimedwait(&handled_, nullptr, &wait);
    if (signal < 0 && errno == EAGAIN) return 0;
    if (signal > 0) return signal;
  }
}

// While the kernel module is loaded, only a process that is registered with it, or a child of that
// process, may freeze, thaw and set slices.
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

// The module may be loaded at any time. The file watch's signal is the fast way to notice it, and
// looking every kLookAgain is the sure one.
void Supervisor::wait_for_the_module() {
  if (!lacks_the_module()) return;
  auto watch = FileWatch::start(options_.module.device, kFileMade);
  if (!watch) return log_warning("{}", watch.error().message());
  file_watch_ = std::move(*watch);
}

// The agent has been running without the module and has to start again with it. It thaws what it
// froze before it ends, which the module allows it as a child of the registered supervisor.
void Supervisor::take_the_late_module() {
  if (!lacks_the_module()) return;
  if (file_watch_) file_watch_->drain();
  take_the_module();
  if (module_ == nullptr) return;
  file_watch_.reset();
  if (!agent_.is_running()) return;
  log_info("the kernel module has come: the agent starts again with it");
  is_handing_over_ = true;
  agent_.ask_to_end(kHandOver, clock_.now());
}

// The agent's death lets the supervisor thaw what it holds, and the next agent goes on.
void Supervisor::end_stalled_agent() {
  if (!agent_.is_running() || agent_.pid() == stalled_) return;
  const uint32_t held = stall_watch_.look(plane_.region(), agent_.pid(), clock_.now());
  if (held == 0) return;
  stalled_ = agent_.pid();
  log_error("the agent does nothing any more, and keeps {} frozen: it is killed",
            held == 1 ? std::string("one channel group") : fmt::format("{} channel groups", held));
  agent_.kill();
}

// Once while the agent dies, at once, and once when it has died. What fails is tried again, and
// what hangs is waited for, for as long as no agent runs: if none can be started, nobody else does
// it.
void Supervisor::undo(Undoing::Writer writer) {
  take_the_module();
  undoing_.begin(writer);
  // It may wait for the thread that looks after the slots; what is frozen does not wait with it.
  agent_.free_slots();
  undoing_.wait();
  log_undone();
}

void Supervisor::go_on_with_undoing() {
  if (undoing_.next() <= clock_.now()) take_the_module();
  undoing_.advance();
  log_undone();
}

void Supervisor::log_undone() {
  const RecoveryReport report = undoing_.take_report();
  for (const ProcessId& process : report.thawed) log_warning("process {} thawed", process.pid);
  if (report.slices_restored > 0) log_warning("{} slices restored", report.slices_restored);
  for (const std::string& error : report.errors) log_error("recovery: {}", error);
}

// Returns the exit code of a supervisor that was asked to stop. No agent runs.
int Supervisor::end() {
  if (undoing_.is_undone()) return 0;
  log_error(
      "what is still frozen is listed: the next gpushared undoes it, or 'gpushared --recover'");
  return 1;
}

// Nothing more is to come from an agent that has died but what the call does in which a thread of
// it is left, on one GPU: on the others the next agent goes on. Returns what wait(2) would.
std::optional<int> Supervisor::leave_agent() {
  const std::optional<ProcessId> left = agent_.leave(clock_.now());
  if (!left) return std::nullopt;
  left_.add(*left);
  log_error(
      "the agent has died, but a thread of it does not come back from a call of the driver: the "
      "GPU that it asked is left alone until it does");
  // It listens for as long as that thread is left. Once its queue is full nobody could tell that it
  // has died.
  for (const std::string& path : {options_.socket, options_.shim_socket}) ::unlink(path.c_str());
  return SIGKILL;
}

// An agent that ends by itself has said how. `status`: that of wait(2).
void Supervisor::note_ending(pid_t agent, int status) {
  const auto pid = static_cast<uint32_t>(agent);
  if (WIFSIGNALED(status))
    write_ending(plane_.region(), pid, EndingKind::kSignalled,
                 static_cast<uint32_t>(WTERMSIG(status)), clock_.now());
  else if (WEXITSTATUS(status) != 0)
    write_ending(plane_.region(), pid, EndingKind::kExited,
                 static_cast<uint32_t>(exit_code(status)), clock_.now());
}

// After an agent that was not asked to end: sets when the next one is started. `status`: that of
// wait(2). Returns the exit code for the supervisor if the first agent could not start at all.
std::optional<int> Supervisor::plan_restart(int status) {
  const Time now = clock_.now();
  const Nanos lived = now - agent_.started();
  if (WIFEXITED(status) && could_not_start(status) && agent_.starts() == 1)
    return exit_code(status);  // the agent has logged why
  if (lived > kYoung) {
    pause_ = Nanos{};
  } else {
    pause_ = next_pause(pause_);
  }
  start_at_ = now + pause_;
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("was ended by signal {}", WTERMSIG(status))
                              : fmt::format("ended with code {}", exit_code(status));
  const std::string when = pause_ == Nanos{} ? "" : fmt::format(" in {} ms", pause_ / 1ms);
  log_error("the agent {}; starting it again{}", how, when);
  return std::nullopt;
}

int Supervisor::run() {
  sigemptyset(&handled_);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD, kAgentDies, kFileMade, kUndoingTells})
    sigaddset(&handled_, signal);
  ::sigprocmask(SIG_BLOCK, &handled_, &before_);
  wait_for_the_module();
  take_the_late_module();
  undoing_.look_for_gpu();

  start_at_ = clock_.now();
  bool is_stopping = false;
  while (true) {
    const Time now = clock_.now();
    if (!agent_.is_running() && !is_stopping && now >= start_at_ && !start_agent())
      start_at_ = now + kLongestPause;
    Time until = std::min(agent_.kill_at(), now + kLookAgain);
    if (!agent_.is_running()) until = std::min(until, start_at_);
    until = std::min({until, undoing_.next(), agent_.leave_at()});

    const int signal = wait_for_signal(until);
    if (signal == 0) undoing_.look_for_gpu();
    go_on_with_undoing();
    if ((signal == 0 || signal == kFileMade) && !is_stopping) take_the_late_module();
    if (signal == kAgentDies && agent_.is_dying()) undo(Undoing::Writer::kDies);
    if (signal == SIGHUP && agent_.is_running()) agent_.send(SIGHUP);
    if (signal == SIGTERM || signal == SIGINT) {
      if (!agent_.is_running()) return end();
      is_stopping = true;
      agent_.ask_to_end(SIGTERM, clock_.now());
    }
    end_stalled_agent();
    agent_.kill_if_overdue(clock_.now());

    const pid_t agent = agent_.pid();
    std::optional<int> ended = agent_.reap();
    if (!ended) ended = leave_agent();
    if (!ended) continue;
    undo(Undoing::Writer::kHasEnded);
    note_ending(agent, *ended);
    if (is_stopping) return end();
    if (std::exchange(is_handing_over_, false)) {
      start_at_ = clock_.now();
      continue;
    }
    if (const std::optional<int> code = plan_restart(*ended)) return *code;
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
