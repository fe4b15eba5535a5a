// SPDX-License-Identifier: Apache-2.0
// The gate that launches pass. While it is open, a launch costs one load, and one addition on a
// cache line that belongs to the thread. While the agent holds it closed, launches wait; they go on
// when it opens, and also when the agent's beat stops, so that no program stands still because the
// agent has died. A thread that has just passed when the gate closes still makes that one launch.
//
// Any thread. Takes no lock, and so is safe in signal handlers and after fork().
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/link/attach.h"

namespace gpushare::shim {

namespace detail {
// 1 + the index of this thread's stripe; 0: it has none yet.
extern constinit thread_local uint32_t own_stripe;
uint32_t take_stripe();
}  // namespace detail

// Counts a launch in this thread's stripe and returns the count before it. Each stripe but the last
// belongs to one thread for good; all other threads share the last one.
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

// Waits while the gate is closed and the agent is alive. To be called when `gate` was odd.
void wait_at_gate(ShimSlot& slot);

bool is_agent_alive(const ShimSlot& slot);
// Waits until `word` is no longer `value`, a thread wakes it, a signal comes, or it is time to
// check that the agent is alive (50 ms).
void wait_on(std::atomic<uint32_t>& word, uint32_t value);
// Less than a second. No point at which pthread_cancel() may end the thread.
void sleep_briefly(int64_t ns);

// After so many launches of one stripe the caller checks that the agent is alive.
inline constexpr uint64_t kLaunchesPerLook = 64;

// As pass_gate(), but calls no function. False: nothing was done, and pass_gate() is to be called.
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

// Counts the launch and passes the gate, waiting if it is closed. Returns true once every
// kLaunchesPerLook launches of this thread's counter.
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
