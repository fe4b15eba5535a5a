// SPDX-License-Identifier: Apache-2.0
// Whether a part of the program may reach the driver past the shim: a library that was loaded with
// RTLD_DEEPBIND finds libc's dlsym(), and the driver's own functions, before the shim's, and so do
// those that come with it. Julia loads all libraries so. What such a library puts into a stream is
// at the stream's home, and in order only with what is there, too.
#pragma once

#include <atomic>

namespace gpushare::shim {

// Set once, by gs_note_deep_bind(), and never cleared. Any thread.
extern constinit std::atomic<bool> is_driver_bypassed;
// Called once after it is set, by the thread that loads the library; null: nobody wants to know.
// Who stores it asks for the flag after that.
extern constinit std::atomic<void (*)()> when_driver_is_bypassed;

}  // namespace gpushare::shim

// Called by dlopen() of entry.S, before libc's, if the library is to be bound deeply. On the
// program's thread, which may be in any code but the shim's own.
extern "C" void gs_note_deep_bind();
