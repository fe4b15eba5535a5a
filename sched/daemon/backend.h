// SPDX-License-Identifier: Apache-2.0
// Backend: which GPUs the agent drives: the machine's through the NVIDIA driver, or simulated ones.
// The one place in sched/ that knows the difference.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "intercept/gpu.h"
#include "intercept/observer.h"
#include "shmctl/base/error.h"

namespace gpushare {

struct Backend {
  std::unique_ptr<Gpu> gpu;
  Observer* observer = nullptr;  // nullptr: nothing tells of new processes, `warning` says why
  std::string warning;
  std::unique_ptr<Observer> own;  // what `observer` is, unless it is the module's
};

// `simulation`: the socket of gpushare-sim; nullopt: the driver. `module`: the kernel module's
// events, which outlive the backend; nullptr: it does not see the driver, and the eBPF probe is
// loaded. The observer starts first, so that a process which starts meanwhile is in its events, in
// gpu->users(), or in both.
Result<Backend> open_backend(const std::optional<std::string>& simulation, Observer* module);

// Control alone, for recovery.
Result<std::unique_ptr<Gpu>> open_gpu(const std::optional<std::string>& simulation);

}  // namespace gpushare
