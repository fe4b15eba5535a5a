// SPDX-License-Identifier: Apache-2.0
// With the kernel module loaded, only a process that is registered with it may thaw and restore
// slices, and it is registered for as long as it holds the device. For the program itself, before
// an agent runs.
#pragma once

#include <memory>

#include "sched/daemon/agent.h"
#include "sched/daemon/program/commands.h"
#include "sched/module/kernel_module.h"
#include "shmctl/base/log.h"

namespace gpushare {

// nullptr: there is no module, or not for us, which is logged.
inline std::unique_ptr<kmod::Device> hold_module(const AgentOptions& options) {
  if (options.module.device.empty()) return nullptr;
  auto opened = open_module(options.module.device, kForAStoppingAgent);
  if (opened) return std::move(*opened);
  if (opened.error().code != std::errc::no_such_file_or_directory)
    log_warning("{}", opened.error().message());
  return nullptr;
}

}  // namespace gpushare
