// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/link/done.h"

#include <cstdlib>

#include "intercept/shim/link/attach.h"
#include "intercept/shim/link/wake.h"

namespace gpushare::shim {

void context_begins() { this_process().contexts.fetch_add(1, std::memory_order_relaxed); }

// A reset gives up several at once, so that the count may be too high; it is never too low.
bool context_ends() {
  Process& process = this_process();
  int32_t before = process.contexts.load(std::memory_order_relaxed);
  while (before > 0 &&
         !process.contexts.compare_exchange_weak(before, before - 1, std::memory_order_relaxed)) {
  }
  if (before <= 1) say_done();
  return before > 0;
}

void say_done() {
  const Process* const process = detail::process.load(std::memory_order_acquire);
  ShimSlot* const mine =
      process == nullptr ? nullptr : process->slot.load(std::memory_order_acquire);
  if (mine == nullptr) return;
  mine->done_at.store(launches_of(*mine), std::memory_order_release);
  wake_agent();
}

void say_done_at_exit() {
  static constinit std::atomic<bool> is_registered{false};
  if (!is_registered.exchange(true, std::memory_order_relaxed)) std::atexit(&say_done);
}

}  // namespace gpushare::shim
