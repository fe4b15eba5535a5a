// SPDX-License-Identifier: Apache-2.0
// A sleep in a call that the shim makes for the program. Any thread.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace gpushare::shim {

// A direct system call, as libc's function is a point at which pthread_cancel() may end the thread.
// Changes errno.
inline void sleep_ns(uint64_t ns) {
  timespec time{.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  ::syscall(SYS_nanosleep, &time, nullptr);
}

}  // namespace gpushare::shim
