// SPDX-License-Identifier: Apache-2.0
// What gpushared does without an agent: it reads a configuration, and drops what was set at run
// time. Called by its main function, on its only thread.
#pragma once

#include <string>

#include "sched/daemon/agent.h"
#include "shmctl/base/error.h"
#include "shmctl/program/command_line.h"

namespace gpushare {

// How long what needs the agent's lock waits for an agent that is just stopping.
inline constexpr Nanos kForAStoppingAgent = std::chrono::seconds(3);

// Logs the error. Returns kExitUsage where an argument was wrong, otherwise kExitFailure.
ExitCode fail(const Error& error);

// `gpushared --check-config`: says whether the file at `path` is correct, and names each mistake. A
// file that is not there is a mistake only where somebody has named it (`must_exist`).
ExitCode check_config(const std::string& path, bool must_exist);

// `gpushared --forget`: as `gpushare forget` asks it of an agent, when none runs. Waits for up to
// kForAStoppingAgent, and fails while an agent runs.
ExitCode forget_all(const AgentOptions& options);

}  // namespace gpushare
