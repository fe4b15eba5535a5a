// SPDX-License-Identifier: Apache-2.0
// AgentProcess: the agent as a child process of the supervisor, which calls it on its main thread.
// It starts the agent (this program again, so that the two share no memory), asks it to end, kills
// it when it does not end in time, and says how it ended. It guarantees that the agent gets SIGTERM
// when the supervisor dies, and that the supervisor gets a signal as soon as the agent dies.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sched/daemon/lifeline.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/process_id.h"
#include "shmctl/shim/slot_keeper.h"

namespace gpushare {

class AgentProcess {
 public:
  // `arguments`: the agent's argv; start() appends its own options. `death_signal`: what the
  // calling process gets when the agent dies, about a millisecond later (see
  // sched/daemon/lifeline.h).
  AgentProcess(std::vector<std::string> arguments, int death_signal)
      : arguments_(std::move(arguments)), death_signal_(death_signal) {}

  // REQUIRES: !is_running(). `module_fd`: the kernel module's device, which the agent inherits; -1:
  // there is none. `left`: for Predecessors::parse() in the agent. `signals`: the agent's signal
  // mask. Error: the one of fork().
  Result<> start(int module_fd, const std::string& left, const sigset_t& signals, Time now);

  bool is_running() const { return pid_ != 0; }
  pid_t pid() const { return pid_; }  // 0: it does not run
  Time started() const { return started_; }
  uint64_t starts() const { return starts_; }  // how often start() has succeeded

  // Whether the agent has begun to die, which the death signal tells: that may come late, and be of
  // an agent before.
  bool is_dying() const { return is_running() && lifeline_ != nullptr && lifeline_->has_fired(); }
  // The agent has died: whoever waits for credit from it goes on.
  void free_slots() {
    if (slots_ != nullptr) slots_->free_all();
  }

  // REQUIRES for these three: is_running().
  void send(int signal) const { ::kill(pid_, signal); }
  // Sends `signal`, after which the agent has five seconds to end.
  void ask_to_end(int signal, Time now);
  void kill() const { send(SIGKILL); }

  // When an agent that was asked to end has to be killed; Time::max(): it was not asked.
  Time kill_at() const { return kill_at_; }
  void kill_if_overdue(Time now);

  // The status of wait(2), once, after the agent has ended; nullopt: it runs, or there is none.
  std::optional<int> reap();
  // Gives up an agent that has died and cannot be reaped, because a thread of it is in a call of
  // the driver that does not come back: returns it, once, and the next one may be started. It is
  // reaped by the way when it can be. nullopt: it runs, or has not been dead for kToEnd.
  std::optional<ProcessId> leave(Time now);
  // When to call leave() again; Time::max(): the agent has not died.
  Time leave_at() const { return dead_since_ ? *dead_since_ + kToEnd : Time::max(); }
  // An agent that dies closes the driver's files, which takes a quarter of a second (H200).
  static constexpr Nanos kToEnd = std::chrono::seconds(1);

 private:
  void forget();

  const std::vector<std::string> arguments_;
  const int death_signal_;
  pid_t pid_ = 0;
  std::unique_ptr<Lifeline> lifeline_;  // nullptr: the agent's death is seen when it is reaped
  std::unique_ptr<SlotKeeper> slots_;   // of the last agent; nullptr: it could not be made
  Time started_{};
  uint64_t starts_ = 0;
  Time kill_at_ = Time::max();
  std::optional<Time> dead_since_;  // not reaped yet
  std::vector<pid_t> left_;         // given up by leave(), and not reaped yet
};

}  // namespace gpushare
