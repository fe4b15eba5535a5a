// SPDX-License-Identifier: Apache-2.0
// Backend: the GPUs that the agent drives: the machine's, through the NVIDIA driver, or simulated
// ones. This is the one place in sched/ that knows the difference. Called on the agent's thread,
// and on the supervisor's for recovery.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "intercept/gpu.h"
#include "intercept/lineage.h"
#include "intercept/observer.h"
#include "shmctl/base/error.h"

namespace gpushare {

struct Backend {
  std::unique_ptr<Gpu> gpu;
  Observer* observer = nullptr;  // nullptr: nothing tells of new processes, and `warning` says why
  std::string warning;
  std::unique_ptr<Observer> own;  // owns `observer`, unless that is the module's
};

// `simulation`: the socket of gpushare-sim; nullopt: the NVIDIA driver. `module`: the kernel
// module's observer, which outlives the backend; nullptr: the module does not see the driver, and
// the eBPF probe is loaded. The observer starts before the GPUs are opened, so that a process that
// comes meanwhile is in its events, in gpu->users(), or in both. Error: there is no usable GPU.
Result<Backend> open_backend(const std::optional<std::string>& simulation, Observer* module);

// What follows forks, for real and simulated GPUs alike: their programs are real processes. Errors
// of BpfLineage::start().
// `region`: the name of the control plane; the next agent of the same name goes on with it.
Result<std::unique_ptr<Lineage>> open_lineage(const std::string& region);

// Opens the GPUs without an observer: enough for recovery.
Result<std::unique_ptr<Gpu>> open_gpu(const std::optional<std::string>& simulation);

}  // namespace gpushare
