// SPDX-License-Identifier: Apache-2.0
// The gate that launches pass. While it is open a launch costs one load and one addition on a line
// that is this thread's own. While the agent holds it closed, launches wait; they go on when it
// opens, and when the agent is dead: no program stands still because we died.
//
// A thread that has just passed when the gate closes still makes that one launch. Any thread; takes
// no lock, and so is safe in signal handlers and after fork().
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/attach.h"

namespace gpushare::shim {

// This thread's stripe of the counters.
ShimStripe& stripe_of(ShimSlot& slot);

// `gate` was odd.
void wait_at_gate(ShimSlot& slot);

// So many launches of a stripe go by until somebody looks whether the agent lives.
inline constexpr uint64_t kLaunchesPerLook = 64;

inline void pass_gate() {
  ShimSlot& mine = slot();
  const uint64_t before = stripe_of(mine).launches.fetch_add(1, std::memory_order_relaxed);
  if (__builtin_expect(before % kLaunchesPerLook == 0, 0)) attach_again(mine);
  if (__builtin_expect((mine.gate.load(std::memory_order_relaxed) & 1) != 0, 0)) wait_at_gate(mine);
}

}  // namespace gpushare::shim
