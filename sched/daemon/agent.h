// SPDX-License-Identifier: Apache-2.0
// Agent: the event loop around the Scheduler, on one thread. It waits in one place (Boost.Asio's
// io_context), for the observer's descriptor, the tick, the control socket, signals and systemd's
// watchdog. Without a GPU it serves all the same, and looks for one every two seconds.
//
// A driver that hangs, at its opening or on one GPU, holds up nothing but that.
//
// SIGTERM and SIGINT: it thaws everything, restores the slices and ends. SIGUSR1, which the
// supervisor sends: the same, to make way for the next agent. What was set at run time stays in the
// roster (shmctl/plane/roster.h), however the agent ends.
// SIGHUP: it reads the configuration again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sched/module/kernel_module.h"
#include "shmctl/base/error.h"
#include "shmctl/base/process_id.h"
#include "shmctl/plane/region.h"

namespace gpushare {

struct AgentOptions {
  std::string region = kDefaultRegionName;
  std::string socket = "/run/gpushare/agent.sock";
  std::string shim_socket;
  std::string config = "/etc/gpushare/gpushare.toml";  // need not exist
  std::string kept_config{};              // the last correct one (kept_config.h); empty: none
  std::string kept_roster{};              // what was set at run time (roster_store.h); empty: none
  std::optional<std::string> simulation;  // the socket of gpushare-sim
  ModulePaths module{};                   // of the kernel module
  int module_fd = -1;                     // the module's device, from the supervisor; -1: none
  uint32_t supervisor_pid = 0;            // 0: the agent runs alone
  uint64_t restarts = 0;          // how often the supervisor has started an agent before this one
  std::vector<ProcessId> left{};  // who may still have a call of a driver under way
};

// Runs until a signal ends it. Errors: it could not start, because of the configuration
// (invalid_argument), the control plane or the control socket; timed_out: at its end a GPU did not
// answer, and what is frozen there is listed in the ledger. The caller prints the error. `started`
// is false before, and set once the agent serves.
Result<> run_agent(const AgentOptions& options, bool& started);

// An agent that could not start tells its supervisor so: it adds this to its exit code.
inline constexpr int kCouldNotStart = 64;

}  // namespace gpushare
