// SPDX-License-Identifier: Apache-2.0
// The words of a slot that threads of its process wait for. Any thread.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace gpushare {

// Wakes all threads, of any process, that wait for this word; they look at it again.
inline void wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace gpushare
