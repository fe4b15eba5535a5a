// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/driver.h"

#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/link/attach.h"

namespace gpushare::shim {
namespace {

constexpr const char* kNames[] = {GS_DRIVER_FUNCTIONS(GS_FUNCTION_NAME)};

constinit DriverTable<Driver> table(kNames);

}  // namespace

const Driver* driver() { return table.get(); }

bool is_driver_too_old() { return table.look_up() == Lookup::kMissing; }

}  // namespace gpushare::shim
