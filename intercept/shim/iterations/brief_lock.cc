// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/iterations/brief_lock.h"

#include <sched.h>

#include "intercept/shim/link/backoff.h"

namespace gpushare::shim {

bool BriefLock::try_more() {
  for (int i = 0; i < kAttempts; ++i) {
    __builtin_ia32_pause();
    if (!held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire))
      return true;
  }
  return false;
}

bool BriefLock::try_lock_for_long() {
  for (int i = 0; i < kTurns; ++i) {
    if (try_lock()) return true;
    ::sched_yield();
  }
  return false;
}

void BriefLock::lock() {
  for (Backoff wait; !try_lock();) wait.pause();
}

}  // namespace gpushare::shim
