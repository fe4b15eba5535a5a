// SPDX-License-Identifier: Apache-2.0
// Whether a part of the program may reach the driver past the shim: a library that was loaded with
// RTLD_DEEPBIND finds libc's dlsym(), and the driver's own functions, before the shim's, and so do
// those that come with it. Julia loads all libraries so. What such a library puts into a stream is
// at the stream's home, and in order only with what is there, too.
#pragma once

#include <atomic>

namespace gpushare::shim {

// Set once, by calls/deep_bind.cc, and never cleared. Any thread.
extern constinit std::atomic<bool> is_driver_bypassed;

}  // namespace gpushare::shim
