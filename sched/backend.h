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
  std::unique_ptr<Observer> observer;  // nullptr: there is no probe, `warning` says why
  std::string warning;
};

// `simulation`: the socket of gpushare-sim; nullopt: the driver. The observer starts first, so that
// a process which starts meanwhile is in its events, in gpu->users(), or in both.
Result<Backend> open_backend(const std::optional<std::string>& simulation);

// Control alone, for recovery.
Result<std::unique_ptr<Gpu>> open_gpu(const std::optional<std::string>& simulation);

}  // namespace gpushare
