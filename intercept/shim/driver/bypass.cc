// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/bypass.h"

namespace gpushare::shim {

constinit std::atomic<bool> is_driver_bypassed{false};

}  // namespace gpushare::shim
