// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/driver.h"

#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/link/attach.h"

namespace gpushare::shim {
namespace {

constinit DriverTable<Driver> table;

}  // namespace

const Driver* driver() { return table.get(); }

bool is_driver_too_old() { return table.look_up() == Lookup::kMissing; }

}  // namespace gpushare::shim
