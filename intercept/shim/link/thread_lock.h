// SPDX-License-Identifier: Apache-2.0
// A lock that a thread keeps while it waits for an answer of the agent, or while it is in the
// driver, perhaps for as long as that takes to make a context. The same thread may come again
// meanwhile, from a profiler's callback or a signal handler; then it goes on without the lock. Of a
// thread that was cancelled in there, or ended otherwise, another one takes it over. Zero bytes are
// a free lock. It belongs on the page that is cleared in a child of fork(), whose parent may hold
// it. Any thread.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "intercept/shim/link/quiet.h"
#include "intercept/shim/link/sleep.h"
#include "intercept/shim/link/thread_id.h"

namespace gpushare::shim {

class ThreadLock {
 public:
  // Returns false if this thread holds it already.
  bool lock() {
    const KeepErrno errno_of_the_program;
    const uint32_t me = thread_id();
    for (uint32_t tries = 0;; ++tries) {
      uint32_t holder = 0;
      if (holder_.compare_exchange_strong(holder, me, std::memory_order_acquire)) return true;
      if (holder == me) return false;
      if (tries < kYields) {
        ::sched_yield();
        continue;
      }
      if (!is_alive(holder) &&
          holder_.compare_exchange_strong(holder, me, std::memory_order_acquire))
        return true;
      sleep_ns(kPauseNs);
    }
  }
  void unlock() { holder_.store(0, std::memory_order_release); }

 private:
  // To make a context takes a tenth of a second and more: so often, and then with pauses.
  static constexpr uint32_t kYields = 64;
  static constexpr uint64_t kPauseNs = 1'000'000;

  std::atomic<uint32_t> holder_;  // 0: it is free
};

}  // namespace gpushare::shim
