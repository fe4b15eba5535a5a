// SPDX-License-Identifier: Apache-2.0
// Gpu over the stock NVIDIA driver.
#pragma once

#include <memory>

#include "intercept/gpu.h"

namespace gpushare {

namespace nvrm {
class Driver;
}

enum class RmUse {
  kAgent,     // everything
  kRecovery,  // freeze, thaw and slices only: no switch log, no NVML
};

// Errors: no_such_device (no driver, no GPU), permission_denied. A driver we do not know opens too:
// its support() says observe only. `driver` must outlive the result; the second form uses the
// machine's.
Result<std::unique_ptr<Gpu>> make_rm_gpu(nvrm::Driver& driver, RmUse use);
Result<std::unique_ptr<Gpu>> make_rm_gpu(RmUse use = RmUse::kAgent);

// Is there a driver at all? Costs no more than an open(). Errors: as above.
Result<> look_for_driver();

}  // namespace gpushare
