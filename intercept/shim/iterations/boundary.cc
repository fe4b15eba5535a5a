// SPDX-License-Identifier: Apache-2.0
// The boundary: the next iteration waits while the agent says so (ShimIterations::run_until). On
// the thread that is about to begin one, with `lock_` held and let go while it waits.
#include "intercept/shim/iterations/progress.h"
#include "intercept/shim/link/gate.h"
#include "intercept/shim/link/wake.h"

namespace gpushare::shim {

bool Progress::must_wait(const ShimIterations& words) const {
  const uint64_t until = words.run_until.load(std::memory_order_acquire);
  return until != 0 && now_.begun >= until;
}

// REQUIRES: lock_ is held, an iteration is about to begin. Returns true if it had to wait, while
// which the lock was free.
bool Progress::pass_boundary() {
  ShimSlot& mine = slot();
  ShimIterations& words = mine.iterations;
  if (__builtin_expect(!must_wait(words), 1)) return false;
  if (words.waiting.fetch_add(1, std::memory_order_relaxed) == 0)
    words.waiting_since_ns.store(monotonic_ns(), std::memory_order_relaxed);
  wake_agent();
  while (true) {
    // Pairs with the release in ShimHost::set_run_until(): either the new run_until is seen, or
    // `turn` has changed and the wait returns at once.
    const uint32_t turn = words.turn.load(std::memory_order_acquire);
    if (!must_wait(words)) break;
    if (!is_agent_alive(mine)) {
      mine.gave_up.fetch_add(1, std::memory_order_relaxed);
      break;
    }
    lock_.unlock();
    wait_on(words.turn, turn);
    lock_.lock();
  }
  if (words.waiting.fetch_sub(1, std::memory_order_relaxed) == 1)
    words.waiting_since_ns.store(0, std::memory_order_relaxed);
  return true;
}

}  // namespace gpushare::shim
