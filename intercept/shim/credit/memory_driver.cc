// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/credit/memory_driver.h"

#include "intercept/shim/driver/lookup.h"

namespace gpushare::shim {
namespace {

#define GS_NAME(name, parameters) #name,
constexpr const char* kNames[] = {GS_MEMORY_FUNCTIONS(GS_NAME) "cuFuncGetName", "cuKernelGetName"};
#undef GS_NAME

constinit DriverTable<MemoryDriver> table(kNames, 2);

}  // namespace

const MemoryDriver* memory_driver() { return table.get(); }

}  // namespace gpushare::shim
