// SPDX-License-Identifier: Apache-2.0
// Backoff: the pauses of a thread that waits for another one which will be done in a moment. After
// some yields they are sleeps, as a yield never lets a thread of lower priority run, and so never
// one that the kernel runs on the same core behind a real-time thread (SCHED_FIFO). Any thread.
#pragma once

#include <sched.h>

#include <cstdint>

#include "intercept/shim/link/quiet.h"
#include "intercept/shim/link/sleep.h"

namespace gpushare::shim {

class Backoff {
 public:
  static constexpr uint32_t kYields = 512;
  static constexpr uint64_t kSleepNs = 50'000;

  void pause() {
    if (pauses_++ < kYields) {
      ::sched_yield();
      return;
    }
    const KeepErrno errno_of_the_program;
    sleep_ns(kSleepNs);
  }
  // How long it has slept, at least.
  uint64_t slept_ns() const { return pauses_ <= kYields ? 0 : (pauses_ - kYields) * kSleepNs; }

 private:
  uint64_t pauses_ = 0;
};

}  // namespace gpushare::shim
