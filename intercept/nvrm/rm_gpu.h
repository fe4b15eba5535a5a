// SPDX-License-Identifier: Apache-2.0
// Makes the Gpu (gpu.h) of the stock NVIDIA driver. The agent, recovery and doctor call it.
#pragma once

#include <memory>

#include "intercept/gpu.h"

namespace gpushare {

namespace nvrm {
class Driver;
}

enum class RmUse {
  kAgent,     // all of Gpu
  kRecovery,  // freeze, thaw and slices only, without the switch log and NVML
};

// Opens all GPUs; those that refuse are left alone, and support() says why. Errors: no_such_device
// (there is no driver or no GPU), permission_denied. An unknown driver opens, too, and its
// support() says that programs are only observed. `driver` must outlive the result; the second form
// uses the machine's driver.
Result<std::unique_ptr<Gpu>> make_rm_gpu(nvrm::Driver& driver, RmUse use);
Result<std::unique_ptr<Gpu>> make_rm_gpu(RmUse use = RmUse::kAgent);

// The same, but opens no GPU: each is opened by Gpu::open(), or by the first freeze or thaw there.
// What open() says of the switch log is not in support().
Result<std::unique_ptr<Gpu>> list_rm_gpus(nvrm::Driver& driver, RmUse use);
Result<std::unique_ptr<Gpu>> list_rm_gpus(RmUse use);

// Succeeds when a driver is there; costs no more than an open(). Errors: as above.
Result<> look_for_driver();

}  // namespace gpushare
