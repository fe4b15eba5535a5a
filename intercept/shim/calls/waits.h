// SPDX-License-Identifier: Apache-2.0
// Counts the threads that are in a call which waits for work on a GPU (ShimSlot::waits). A thread
// that is cancelled in such a call, or ends in it otherwise, waits no more: the shim has no code
// that runs when a stack is unwound, so what is left of its count is taken back when it ends. Any
// thread.
#pragma once

#include <cstdint>

#include "shmctl/shim/slot.h"

namespace gpushare::shim {

namespace detail {
struct OwnWaits {
  ShimSlot* slot;  // in which they are counted
  uint32_t count;  // of this thread
  bool is_noted;   // its end is noticed
};
extern constinit thread_local OwnWaits own_waits;
void note_end_of_thread();
}  // namespace detail

inline void begin_wait(ShimSlot& slot) {
  detail::OwnWaits& own = detail::own_waits;
  if (!own.is_noted) detail::note_end_of_thread();
  own.slot = &slot;
  ++own.count;
  slot.waits.fetch_add(1, std::memory_order_relaxed);
}

inline void end_wait(ShimSlot& slot) {
  slot.waits.fetch_sub(1, std::memory_order_relaxed);
  --detail::own_waits.count;
}

}  // namespace gpushare::shim
