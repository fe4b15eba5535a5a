// SPDX-License-Identifier: Apache-2.0
// Counts the threads that are in a call which waits for work on a GPU (ShimSlot::waits), and says
// what that work needs of a partition, as far as they have launched it (needs.h). A thread that is
// cancelled in such a call, or ends in it otherwise, waits no more: the shim has no code that runs
// when a stack is unwound, so what is left of its count is taken back when it ends. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "shmctl/shim/slot.h"

namespace gpushare::shim {

namespace detail {
struct OwnWaits {
  ShimSlot* slot;  // in which they are counted
  uint32_t count;  // of this thread
  bool is_noted;   // its end is noticed
  // By entry of ShimSlot::gpus: the most SMs that a launch of the thread needs at once since the
  // host saw work of it end.
  uint32_t sms[kShimGpus];
};
extern constinit thread_local OwnWaits own_waits;
void note_end_of_thread();
}  // namespace detail

// Whatever other threads say in the same instant, `most` is not less than this. `Word`: an atomic
// number; a test brings one on which it sees what happens in between.
template <class Word>
[[gnu::always_inline]] inline void raise(Word& most, uint32_t sms) {
  uint32_t now = most.load(std::memory_order_relaxed);
  while (__builtin_expect(sms > now, 0) &&
         !most.compare_exchange_weak(now, sms, std::memory_order_seq_cst)) {
  }
}

// Says again what the end of another thread's wait may have taken back, once it is counted as
// waiting: see note_end() of needs.h.
inline void begin_wait(ShimSlot& slot) {
  detail::OwnWaits& own = detail::own_waits;
  if (!own.is_noted) detail::note_end_of_thread();
  own.slot = &slot;
  ++own.count;
  slot.waits.fetch_add(1, std::memory_order_seq_cst);
  for (uint32_t gpu = 0; gpu < kShimGpus; ++gpu)
    if (const uint32_t sms = own.sms[gpu];
        sms > slot.needs[gpu].at_once_sms.load(std::memory_order_seq_cst))
      raise(slot.needs[gpu].at_once_sms, sms);
}

inline void end_wait(ShimSlot& slot) {
  slot.waits.fetch_sub(1, std::memory_order_relaxed);
  --detail::own_waits.count;
}

}  // namespace gpushare::shim
