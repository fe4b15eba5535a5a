// SPDX-License-Identifier: Apache-2.0
// The number of the calling thread in the kernel, which another thread may have when this one has
// ended. Any thread.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace gpushare::shim {

inline uint32_t thread_id() { return static_cast<uint32_t>(::syscall(SYS_gettid)); }

// True also if another thread of this process has the number by now, and where a sandbox refuses
// the question. Changes errno.
inline bool is_alive(uint32_t thread) {
  return ::syscall(SYS_tgkill, ::syscall(SYS_getpid), thread, 0) == 0 || errno != ESRCH;
}

}  // namespace gpushare::shim
