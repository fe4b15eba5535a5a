// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/driver.h"

#include <atomic>

#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/link/attach.h"

namespace gpushare::shim {
namespace {

constexpr const char* kNames[] = {
#define GS_NAME(name, parameters) #name,
    GS_DRIVER_FUNCTIONS(GS_NAME)
#undef GS_NAME
};

// Two threads may fill it at once, with the same values.
constinit Driver found{};
constinit std::atomic<int> state{0};  // 0: not looked up yet, 1: complete, 2: a function is missing

}  // namespace

const Driver* driver() {
  int now = state.load(std::memory_order_acquire);
  if (now == 0) {
    if (driver_function("cuInit") == nullptr) return nullptr;  // it may be loaded later
    now = 1;
    void* functions[std::size(kNames)];
    static_assert(sizeof functions == sizeof found);
    for (size_t i = 0; i < std::size(kNames); ++i) {
      functions[i] = driver_function(kNames[i]);
      if (functions[i] == nullptr) now = 2;
    }
    auto* members = reinterpret_cast<void**>(&found);
    for (size_t i = 0; i < std::size(kNames); ++i)
      std::atomic_ref(members[i]).store(functions[i], std::memory_order_relaxed);
    state.store(now, std::memory_order_release);
  }
  return now == 1 ? &found : nullptr;
}

bool is_driver_too_old() {
  driver();
  return state.load(std::memory_order_acquire) == 2;
}

}  // namespace gpushare::shim
