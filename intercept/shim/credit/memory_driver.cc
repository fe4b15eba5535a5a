// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/credit/memory_driver.h"

#include "intercept/shim/driver/lookup.h"

namespace gpushare::shim {
namespace {

constexpr const char* kNames[] = {GS_MEMORY_FUNCTIONS(GS_FUNCTION_NAME) "cuFuncGetName",
                                  "cuKernelGetName"};

constinit DriverTable<MemoryDriver> table(kNames, 2);

}  // namespace

const MemoryDriver* memory_driver() { return table.get(); }

}  // namespace gpushare::shim
