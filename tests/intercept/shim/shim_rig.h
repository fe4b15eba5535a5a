// SPDX-License-Identifier: Apache-2.0
// An agent's end of the shim's socket with a thread that serves and beats, and programs that run
// with the shim preloaded. The test's thread uses all of it; one lock keeps the serving thread
// away.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/program/temp_folder.h"
#include "shmctl/shim/host.h"
#include "shmctl/shim/slot.h"
#include "tests/support/started.h"

namespace gpushare::test {

// The outcome of a program whose exit status must be 0.
Outcome success_of(Child& program);

// For how long a program that is held may stay so after the agent has died: until the last beat is
// too old, and what a busy machine takes to let it run.
inline constexpr Nanos kFreedAfterDeath =
    Nanos(kShimBeatTimeoutNs) + std::chrono::milliseconds(1500);

class ShimRig {
 public:
  // What every process that asks is told.
  explicit ShimRig(uint32_t features, std::vector<ShimRequest::Gpu> gpus = {});
  ~ShimRig();

  // The directory of the MPS server whose clients the programs are to be; set before they start.
  std::string mps_pipe;

  const std::string& socket() const { return socket_; }
  std::vector<std::string> environment() const;
  // bin/tests/NAME below the build folder, with the shim.
  Outcome run(const std::string& name, const std::vector<std::string>& arguments);
  Outcome succeed(const std::string& name, const std::vector<std::string>& arguments);
  std::unique_ptr<Child> start(const std::string& name, const std::vector<std::string>& arguments);

  // The agent dies: it beats no more, and nothing listens on its socket.
  void die();
  void come_back();
  // The agent hangs: it beats no more, and a process that connects gets no answer.
  void hang();
  void go_on();
  // How often this process has woken the agent.
  uint64_t wakes(pid_t pid);
  // Some process has connected while it hangs.
  bool is_asked_in_vain();

  // Launches that were counted, by process, also of processes that have ended.
  std::map<ProcessId, uint64_t> launches();
  uint64_t launches_of_all();
  // Waits until there are more than so many, as long as eventually() does.
  bool launches_beyond(uint64_t count);
  // False: the process has no slot.
  bool with_slot(pid_t pid, const std::function<void(ShimSlot&)>& use);
  // Kills the program. Returns false if its slot stays.
  bool has_no_slot_after_kill(std::unique_ptr<Child> program);
  void with_all_slots(const std::function<void(ShimSlot&)>& use);

 private:
  void serve();
  void note_launches();

  const uint32_t features_;
  const std::vector<ShimRequest::Gpu> gpus_;
  const TempFolder folder_;
  const std::string socket_;
  std::mutex mutex_;  // protects what follows
  std::unique_ptr<ShimHost> host_;
  // An agent that died or hangs: its pages stay, and no beat comes.
  std::unique_ptr<ShimHost> dead_;
  // By process; the host itself forgets slots of processes that end or call exec().
  std::map<ProcessId, uint64_t> launches_;
  std::map<pid_t, uint64_t> wakes_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace gpushare::test
