// SPDX-License-Identifier: Apache-2.0
// A lock that is held for tens of nanoseconds at a time, and that no caller waits for without a
// bound: a caller that finds it taken tries again for a while and then does without. So no thread
// depends on a holder that is not running, and no signal handler on the call that it interrupted.
#pragma once

#include <atomic>

namespace gpushare::shim {

class BriefLock {
 public:
  // One attempt, inline.
  bool try_lock_once() {
    return __builtin_expect(!held_.exchange(true, std::memory_order_acquire), 1);
  }
  // Tries for a few microseconds at most.
  bool try_lock() { return try_lock_once() || try_more(); }
  // Tries as often again after each of kTurns yields, so that a holder that is not running may run.
  bool try_lock_for_long();
  // Waits without a bound. REQUIRES: the caller has held the lock earlier in this call, so that the
  // holder cannot be the code that this thread was running when a signal came.
  void lock();
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  static constexpr int kAttempts = 64, kTurns = 200;
  bool try_more();

  std::atomic<bool> held_{false};
};

}  // namespace gpushare::shim
