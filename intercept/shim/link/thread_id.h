// SPDX-License-Identifier: Apache-2.0
// The number of the calling thread in the kernel, which another thread has when this one has ended.
// Any thread.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace gpushare::shim {

inline uint32_t thread_id() { return static_cast<uint32_t>(::syscall(SYS_gettid)); }

}  // namespace gpushare::shim
