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

// Two threads may fill it at once, with the same values.
constinit MemoryDriver found{};
constinit std::atomic<int> state{0};  // 0: not looked up yet, 1: complete, 2: a function is missing

}  // namespace

const MemoryDriver* memory_driver() {
  int now = state.load(std::memory_order_acquire);
  if (now == 0) {
    if (driver_function("cuInit") == nullptr) return nullptr;  // it may be loaded later
    now = 1;
    auto* members = reinterpret_cast<void**>(&found);
    static_assert(sizeof found == sizeof(void*) * std::size(kNames));
    for (size_t i = 0; i < std::size(kNames); ++i) {
      void* const function = driver_function(kNames[i]);
      if (function == nullptr && i < kNeeded) now = 2;
      std::atomic_ref(members[i]).store(function, std::memory_order_relaxed);
    }
    state.store(now, std::memory_order_release);
  }
  return now == 1 ? &found : nullptr;
}

}  // namespace gpushare::shim
