// SPDX-License-Identifier: Apache-2.0
// The driver's controls for programs that misuse them: those of the real driver, and with
// GPUSHARE_SIM those of the simulated GPU.
#pragma once

#include <cstdlib>
#include <memory>

#include "intercept/gpu.h"
#include "intercept/nvrm/rm_gpu.h"
#include "intercept/sim/gpu/remote_gpu.h"

namespace gpushare::workloads {

inline Result<std::unique_ptr<Gpu>> open_gpu() {
  if (const char* simulation = std::getenv("GPUSHARE_SIM")) return sim::make_sim_gpu(simulation);
  return make_rm_gpu(RmUse::kRecovery);
}

}  // namespace gpushare::workloads
