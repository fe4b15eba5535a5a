// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/driver.h"

#include <atomic>
#include <iterator>

#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/link/attach.h"

namespace gpushare::shim {
namespace {

constexpr const char* kNames[] = {
#define GS_NAME(name, parameters) #name,
    GS_DRIVER_FUNCTIONS(GS_NAME)
#undef GS_NAME
};

constinit Driver found{};
constinit std::atomic<Lookup> state{Lookup::kNotYet};
static_assert(sizeof found == sizeof(void*) * std::size(kNames));

Lookup look_up() {
  return fill_table(state, reinterpret_cast<void**>(&found), kNames, std::size(kNames),
                    std::size(kNames));
}

}  // namespace

const Driver* driver() {
  Lookup now = state.load(std::memory_order_acquire);
  if (now == Lookup::kNotYet) now = look_up();
  return now == Lookup::kComplete ? &found : nullptr;
}

bool is_driver_too_old() { return look_up() == Lookup::kMissing; }

}  // namespace gpushare::shim
