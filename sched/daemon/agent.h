// SPDX-License-Identifier: Apache-2.0
// Agent: the event loop around the Scheduler: the observer's descriptor, the tick, the control
// socket, signals, systemd. It waits in one place (Boost.Asio's io_context) and wakes only for
// these. Without a GPU it serves all the same and looks for one every few seconds.
//
// SIGTERM, SIGINT: thaws everything, restores the slices, ends. SIGUSR1, from the supervisor: the
// same, but tenants and who is in them stay for the next agent. SIGHUP: reads the configuration.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "sched/module/kernel_module.h"
#include "shmctl/base/error.h"

namespace gpushare {

struct AgentOptions {
  std::string region = "/gpushare";
  std::string socket = "/run/gpushare/agent.sock";
  std::string shim_socket;                             // empty: none
  std::string config = "/etc/gpushare/gpushare.toml";  // need not exist
  std::optional<std::string> simulation;               // the socket of gpushare-sim
  ModulePaths module{};                                // of the kernel module
  int module_fd = -1;                                  // its device, from the supervisor; -1: none
  uint32_t supervisor_pid = 0;                         // 0: none
  uint64_t restarts = 0;                               // by the supervisor
};

// Runs until a signal ends it. Error: it could not start (configuration, region or socket); said
// once here, the caller prints it.
Result<> run_agent(const AgentOptions& options);

}  // namespace gpushare
