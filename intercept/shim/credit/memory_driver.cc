// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/credit/memory_driver.h"

#include <atomic>
#include <iterator>

#include "intercept/shim/driver/lookup.h"

namespace gpushare::shim {
namespace {

constexpr const char* kNames[] = {
#define GS_NAME(name, parameters) #name,
    GS_MEMORY_FUNCTIONS(GS_NAME)
#undef GS_NAME
        "cuFuncGetName",
    "cuKernelGetName"};
constexpr size_t kNeeded = std::size(kNames) - 2;

constinit MemoryDriver found{};
constinit std::atomic<Lookup> state{Lookup::kNotYet};
static_assert(sizeof found == sizeof(void*) * std::size(kNames));

}  // namespace

const MemoryDriver* memory_driver() {
  const Lookup now =
      fill_table(state, reinterpret_cast<void**>(&found), kNames, std::size(kNames), kNeeded);
  return now == Lookup::kComplete ? &found : nullptr;
}

}  // namespace gpushare::shim
