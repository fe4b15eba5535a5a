// SPDX-License-Identifier: Apache-2.0
// A lock that a thread keeps while it is in the driver, perhaps for as long as that takes to make a
// context. The same thread may come again meanwhile, from a profiler's callback or a signal
// handler; then it goes on, as it would without the lock. Zero bytes are a free lock. It belongs on
// the page that is cleared in a child of fork(), whose parent may hold it. Any thread.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "intercept/shim/link/thread_id.h"

namespace gpushare::shim {

class ThreadLock {
 public:
  // Returns false if this thread holds it already.
  bool lock() {
    const uint32_t me = thread_id();
    uint32_t holder = 0;
    while (!holder_.compare_exchange_weak(holder, me, std::memory_order_acquire)) {
      if (holder == me) return false;
      if (holder != 0) ::sched_yield();
      holder = 0;
    }
    return true;
  }
  void unlock() { holder_.store(0, std::memory_order_release); }

 private:
  std::atomic<uint32_t> holder_;  // 0: it is free
};

}  // namespace gpushare::shim
