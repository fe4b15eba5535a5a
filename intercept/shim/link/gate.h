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

#include "intercept/shim/link/attach.h"

namespace gpushare::shim {

namespace detail {
// 1 + the stripe of this thread; 0: it has none yet.
extern constinit thread_local uint32_t own_stripe;
uint32_t take_stripe();
}  // namespace detail

// Adds to this thread's stripe, and returns what was there. All but the last stripe belong to one
// thread each, and are never given back.
inline uint64_t count_launch(ShimSlot& slot) {
  uint32_t stripe = detail::own_stripe;
  if (__builtin_expect(stripe == 0, 0)) stripe = detail::take_stripe();
  std::atomic<uint64_t>& launches = slot.stripes[stripe - 1].launches;
  if (__builtin_expect(stripe == kShimStripes, 0))
    return launches.fetch_add(1, std::memory_order_relaxed);
  const uint64_t before = launches.load(std::memory_order_relaxed);
  launches.store(before + 1, std::memory_order_relaxed);
  return before;
}

// `gate` was odd.
void wait_at_gate(ShimSlot& slot);

bool is_agent_alive(const ShimSlot& slot);
// Until `word` is no longer `value`, somebody wakes it, a signal comes, or it is time to look
// whether the agent lives.
void wait_on(std::atomic<uint32_t>& word, uint32_t value);

// So many launches of a stripe go by until somebody looks whether the agent lives.
inline constexpr uint64_t kLaunchesPerLook = 64;

// pass_gate() where that takes no call of another function. False: nothing was done.
[[gnu::always_inline]] inline bool passes_gate_quickly() {
  ShimSlot* mine = this_process().slot.load(std::memory_order_acquire);
  const uint32_t stripe = detail::own_stripe;
  if (mine == nullptr || stripe == 0 || stripe == kShimStripes) return false;
  std::atomic<uint64_t>& launches = mine->stripes[stripe - 1].launches;
  const uint64_t before = launches.load(std::memory_order_relaxed);
  if (before % kLaunchesPerLook == 0 || (mine->gate.load(std::memory_order_relaxed) & 1) != 0)
    return false;
  launches.store(before + 1, std::memory_order_relaxed);
  return true;
}

// True: of its stripe it is the one in kLaunchesPerLook.
inline bool pass_gate() {
  if (__builtin_expect(passes_gate_quickly(), 1)) return false;
  ShimSlot& mine = slot();
  const uint64_t before = count_launch(mine);
  const bool is_time_to_look = before % kLaunchesPerLook == 0;
  if (__builtin_expect(is_time_to_look, 0)) attach_again(mine);
  if (__builtin_expect((mine.gate.load(std::memory_order_relaxed) & 1) != 0, 0)) wait_at_gate(mine);
  return is_time_to_look;
}

}  // namespace gpushare::shim
